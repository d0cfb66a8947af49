"""A small transformer that learns to shift a sequence by one, and whose attention takes most of the time.

As it is written, attention goes over samples and heads in Python. The variable ATTENTION takes what is done about that:
`batched` has all of them in one product, `fused` calls torch's own attention. All three compute the same.
docs/how-to/profile-a-run.md goes through it.
"""

import math
import os

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

STEPS = 40
VOCABULARY, WIDTH, HEADS, LENGTH, BATCH = 64, 64, 8, 16, 32


def looped(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    attended = []
    for sample in range(len(query)):
        heads = []
        for head in range(HEADS):
            scores = query[sample, head] @ key[sample, head].T / math.sqrt(WIDTH // HEADS)
            heads.append(scores.softmax(-1) @ value[sample, head])
        attended.append(torch.stack(heads))
    return torch.stack(attended)


def batched(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    scores = query @ key.transpose(-2, -1) / math.sqrt(WIDTH // HEADS)
    return scores.softmax(-1) @ value


ATTENTION = {"loop": looped, "batched": batched, "fused": scaled_dot_product_attention}


class Attention(nn.Module):
    """Queries, keys and values of all heads at once, as [batch, heads, length, width / heads]."""

    def __init__(self) -> None:
        super().__init__()
        self.attend = ATTENTION[os.environ.get("ATTENTION", "loop")]
        self.split, self.out = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.split(x).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        return self.out(self.attend(query, key, value).transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention_norm, self.mlp_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = Attention()
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.mlp(self.mlp_norm(x))


class Repeater(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.places.weight
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def main() -> None:
    torch.set_num_threads(1)  # operations are small: a second thread would mostly be waited for
    torch.manual_seed(0)
    model = Repeater()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loss_function = nn.CrossEntropyLoss()
    for step in range(1, STEPS + 1):
        tokens = torch.randint(VOCABULARY, (BATCH, LENGTH))
        loss = loss_function(model(tokens).flatten(0, 1), tokens.roll(1, dims=1).flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step}: loss {loss.item():.2f}", flush=True)


if __name__ == "__main__":
    main()
