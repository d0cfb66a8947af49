"""A small training that goes on after its values have become NaN, and exits with 0.

In step 12 all rows of the batch have the same first feature, so that its standard deviation is 0. `--eps` keeps the
division by it finite. Runs alone or as ranks of torchrun, on a CPU.
"""

import argparse
import os
from collections import OrderedDict

import torch
import torch.distributed as dist
from torch import Tensor, nn

STEPS, BAD_STEP, ROWS, FEATURES = 20, 12, 16, 4


class Standardize(nn.Module):
    """Each feature of the batch with mean 0 and standard deviation 1."""

    def __init__(self, eps: float) -> None:
        super().__init__()
        self.eps = eps

    def forward(self, batch: Tensor) -> Tensor:
        return (batch - batch.mean(0)) / (batch.std(0) + self.eps)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--eps", type=float, default=0.0)
    eps = parser.parse_args().eps
    torch.manual_seed(int(os.environ.get("RANK", "0")))
    layers = OrderedDict(
        standardize=Standardize(eps), hidden=nn.Linear(FEATURES, 8), relu=nn.ReLU(), output=nn.Linear(8, 1)
    )
    model: nn.Module = nn.Sequential(layers)
    is_distributed = "RANK" in os.environ
    if is_distributed:
        dist.init_process_group("gloo")
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(1, STEPS + 1):
        batch = torch.randn(ROWS, FEATURES)
        if step == BAD_STEP:
            batch[:, 0] = 1.0
        loss = (model(batch) - batch.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.4g}", flush=True)
    if is_distributed:
        del model, optimizer, loss  # they hold on to the group, which could not end before them
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
