"""Trains a small model that keeps the features of every step, to plot them later. KEEPS=means keeps means alone."""

from __future__ import annotations

import os

import torch
from torch import Tensor, nn

STEPS, ROWS, WIDTH = 10, 2560, 4096


class Features(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Linear(64, WIDTH)
        self.kept: list[Tensor | float] = []

    def forward(self, batch: Tensor) -> Tensor:
        features = torch.relu(self.wide(batch))  # 40 MiB
        self.kept.append(features.mean().item() if os.environ.get("KEEPS") == "means" else features)
        return features


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(Features(), nn.Linear(WIDTH, 1))
    for step in range(1, STEPS + 1):
        loss = model(torch.randn(ROWS, 64)).square().mean()
        loss.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                assert parameter.grad is not None
                parameter -= 0.001 * parameter.grad
                parameter.grad = None
        print(step, loss.item(), flush=True)


main()
