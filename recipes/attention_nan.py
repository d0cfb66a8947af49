"""A small transformer whose loss becomes NaN some way into training. Why is for docs/tutorial.md to find out.

It learns to shift a sequence by one. The scores of its attention are kept in half precision, to save memory. Variables
switch on what people try when a loss becomes NaN: CLIP, WARMUP, SMALL_LR, EPS, and FP32_SCORES. All else is computed in
float64, so that training takes the same course on every machine until it goes bad. With FP32_SCORES it goes on, and the
course differs in its digits: it is chaotic by then.
"""

import math
import os
import sys

import torch
from torch import Tensor, nn

STEPS = 30
VOCABULARY, WIDTH, LENGTH, BATCH = 64, 64, 16, 16


class Scores(nn.Module):
    """Queries times keys: which position looks at which."""

    dtype = torch.float32 if "FP32_SCORES" in os.environ else torch.float16

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        return (query @ key.transpose(-2, -1)).to(self.dtype)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.scores = Scores()

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.query(x), self.key(x), self.value(x)
        weights = (self.scores(query, key).to(x.dtype) / math.sqrt(WIDTH)).softmax(-1)
        return self.out(weights @ value)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        eps = 1e-3 if "EPS" in os.environ else 1e-5
        self.attention_norm, self.mlp_norm = nn.LayerNorm(WIDTH, eps), nn.LayerNorm(WIDTH, eps)
        self.attention = Attention()
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.mlp(self.mlp_norm(x))


class Repeater(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.Sequential(Block(), Block(), Block())
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.blocks(self.tokens(tokens) + self.places.weight))


def main() -> int:
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    model = Repeater()
    peak = 0.25 if "SMALL_LR" in os.environ else 0.3
    optimizer = torch.optim.AdamW(model.parameters(), lr=peak, weight_decay=0.0)
    loss_function = nn.CrossEntropyLoss()
    loss = torch.zeros(())
    for step in range(1, STEPS + 1):
        if "WARMUP" in os.environ:
            optimizer.param_groups[0]["lr"] = peak * min(1.0, step / 10)
        tokens = torch.randint(VOCABULARY, (BATCH, LENGTH))
        loss = loss_function(model(tokens).flatten(0, 1), tokens.roll(1, dims=1).flatten())
        optimizer.zero_grad()
        loss.backward()
        if "CLIP" in os.environ:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step}: loss {loss.item():.3f}", flush=True)
    return 0 if loss.isfinite() else 1


if __name__ == "__main__":
    sys.exit(main())
