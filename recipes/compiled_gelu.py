"""Scores a few batches with a small model. With --compile, torch.compile (inductor) runs it. Is that the same?"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu

BATCHES, WIDTH = 3, 64


class FastGELU(nn.Module):
    """Somebody wanted compiled code to be fast here."""

    def forward(self, hidden: Tensor) -> Tensor:
        return gelu(hidden, approximate="tanh" if torch.compiler.is_compiling() else "none")


class Block(nn.Module):
    def __init__(self, act: nn.Module) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.act = act
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, hidden: Tensor) -> Tensor:
        return hidden + self.down(self.act(self.up(hidden)))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(nn.GELU()), Block(FastGELU()), Block(nn.GELU())])
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, hidden: Tensor) -> Tensor:
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(hidden)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--compile", action="store_true")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model: nn.Module = Model()
    if parser.parse_args().compile:
        model = torch.compile(model)
    for number in range(1, BATCHES + 1):
        with torch.no_grad():
            scores = model(torch.randn(32, WIDTH))
        print(f"batch {number}: mean score {scores.mean():.4f}", flush=True)


main()
