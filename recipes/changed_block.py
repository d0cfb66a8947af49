"""Trains a small model of four blocks. CAST_BLOCK names one that computes in bfloat16, as a later revision might."""

from __future__ import annotations

import os

import torch
from torch import Tensor, nn

CAST_BLOCK = int(os.environ.get("CAST_BLOCK", "-1"))
STEPS = 4


class Block(nn.Module):
    def __init__(self, width: int, *, cast: bool) -> None:
        super().__init__()
        self.cast = cast
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, hidden: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.cast):
            return hidden + self.down(torch.relu(self.up(self.norm(hidden))))


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    blocks = [Block(32, cast=number == CAST_BLOCK) for number in range(4)]
    model = nn.Sequential(*blocks, nn.Linear(32, 1))
    for step in range(1, STEPS + 1):
        loss = model(torch.randn(16, 32)).square().mean()
        loss.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                assert parameter.grad is not None
                parameter -= 0.01 * parameter.grad
                parameter.grad = None
        print(step, loss.item(), flush=True)


main()
