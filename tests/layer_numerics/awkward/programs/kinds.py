"""Modules and tensors out of the ordinary."""

from __future__ import annotations

from typing import Any

import torch
from shared import BAD_STEP, Log, batch, main, say
from torch import Tensor, nn


def _train(model: nn.Module, make: Any, loss_of: Any = lambda out: out.square().mean()) -> None:
    optimizer: torch.optim.Optimizer | None = None
    for step in range(1, 5):
        loss = loss_of(model(*make(step)))
        if optimizer is None:
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        say(loss)


def lazy(bad: bool) -> None:
    _train(
        nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.LazyLinear(1)), lambda step: (batch(bad and step == BAD_STEP),)
    )


def tied(bad: bool) -> None:
    """Input embedding and output projection share their weight; the step of the optimizer makes it bad."""

    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(10, 4)
            self.body = nn.Linear(4, 4)
            self.head = nn.Linear(4, 10, bias=False)
            self.head.weight = self.embedding.weight
            self.factor = 1.0

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.head(self.body(self.embedding(x)) * self.factor)
            return out

    model = Tied()

    def make(step: int) -> Any:
        model.factor = float("nan") if bad and step == BAD_STEP else 1.0
        return (torch.randint(0, 10, (3,)),)

    _train(model, make)


def recurrent(bad: bool) -> None:
    """LSTM layers and cells: outputs are tuples of states."""

    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.LSTM(4, 4, num_layers=2, batch_first=True, dropout=0.1)
            self.cell = nn.GRUCell(4, 4)
            self.head = nn.Linear(4, 1)

        def forward(self, x: Tensor) -> Tensor:
            sequence, (hidden, _) = self.layer(x)
            state = hidden[-1]
            for at in range(sequence.shape[1]):
                state = self.cell(sequence[:, at], state)
            out: Tensor = self.head(state)
            return out

    def make(step: int) -> Any:
        x = torch.randn(2, 3, 4)
        if bad and step == BAD_STEP:
            x[0, 1, 2] = float("nan")
        return (x,)

    _train(Tagger(), make)


def packed_sequence(bad: bool) -> None:
    model = nn.LSTM(4, 4, batch_first=True)

    def make(step: int) -> Any:
        x = torch.randn(2, 3, 4)
        if bad and step == BAD_STEP:
            x[0, 1, 2] = float("nan")
        return (nn.utils.rnn.pack_padded_sequence(x, torch.tensor([3, 2]), batch_first=True),)

    _train(model, make, lambda out: out[0].data.square().mean())


def nested(bad: bool) -> None:
    """Nested tensors of both layouts."""
    import warnings

    warnings.filterwarnings("ignore", message=".*prototype.*")
    model = nn.Linear(4, 4)

    def make(step: int) -> Any:
        parts = [batch(bad and step == BAD_STEP, rows) for rows in (2, 3)]
        return (torch.nested.nested_tensor(parts, layout=torch.jagged),)

    _train(model, make, lambda out: out.values().square().mean())


def quantized(bad: bool) -> None:
    """Dynamically quantized layers, in inference."""
    import warnings

    warnings.filterwarnings("ignore")
    from torch.ao.quantization import quantize_dynamic

    body = quantize_dynamic(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)), {nn.Linear}, torch.qint8)
    log = Log()
    model = nn.Sequential(body, log, nn.Linear(4, 1))
    for step in range(1, 5):
        log.is_bad = bad and step == BAD_STEP
        with torch.inference_mode():
            say(model(batch(False)))


def autocast(bad: bool) -> None:
    """bfloat16 on the CPU, with a GradScaler."""
    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    for step in range(1, 5):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(batch(bad and step == BAD_STEP)).float().square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        say(loss)


class Decoder(nn.Module):
    """A language model with a cache of keys, as a list of tuples."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10, 4)
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
        self.head = nn.Linear(4, 10)
        self.factor = 1.0

    def forward(self, tokens: Tensor, cache: list[Tensor] | None = None) -> dict[str, Any]:
        x = self.embedding(tokens)
        seen = torch.cat([*(cache or []), x], dim=1)
        out, _ = self.attention(x, seen, seen, need_weights=False)
        return {"logits": self.head(out * self.factor), "cache": [seen]}

    @torch.no_grad()
    def generate(self, tokens: Tensor, length: int, bad_at: int) -> Tensor:
        cache: list[Tensor] | None = None
        given = tokens
        for position in range(1, length + 1):
            self.factor = float("nan") if position == bad_at else 1.0
            out = self(given, cache=cache)
            cache = out["cache"]
            given = out["logits"][:, -1:].nan_to_num().argmax(-1)
            tokens = torch.cat([tokens, given], dim=1)
        return tokens


def generation(bad: bool) -> None:
    """Each token of a generate() loop is a call of the model."""
    model = Decoder().eval()
    print(model.generate(torch.tensor([[1, 2]]), 4, BAD_STEP if bad else 0).tolist())


def inference(bad: bool) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Softmax(-1)).eval()
    for step in range(1, 5):
        with torch.inference_mode():
            say(model(batch(bad and step == BAD_STEP)).square())


if __name__ == "__main__":
    main(globals())
