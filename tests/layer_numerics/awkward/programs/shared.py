"""What the programs share: a seeded start, batches of which one may be bad, and losses printed bit by bit."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

BAD_STEP = 3


def batch(is_bad: bool, rows: int = 3, width: int = 4) -> Tensor:
    """Random numbers; with one NaN among them if they are to be bad."""
    x = torch.randn(rows, width)
    if is_bad:
        x[0, 0] = float("nan")
    return x


def say(loss: Tensor) -> None:
    print(loss.detach().double().sum().item().hex(), flush=True)


class Log(nn.Module):
    """log(x ** 2), which is -Inf at 0 and NaN once it is multiplied with 0: where `is_bad` says so, it is."""

    def __init__(self) -> None:
        super().__init__()
        self.is_bad = False

    def forward(self, x: Tensor) -> Tensor:
        out = x.square().add(1.0).log()
        return out * float("nan") if self.is_bad else out


def two_layers() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))


def main(programs: dict[str, Any]) -> None:
    """Run the one that the command line names: `script.py NAME [bad]`."""
    name, *rest = sys.argv[1:]
    torch.manual_seed(0)
    program: Callable[[bool], None] = programs[name]
    program(rest == ["bad"])
