"""Two ranks started with torch.multiprocessing.spawn average gradients by hand; the second begins with a NaN weight."""

import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn


def work(rank, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(f"{folder}/store", 2), rank=rank, world_size=2)
    torch.manual_seed(rank)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    if rank == 1:
        with torch.no_grad():
            model[2].weight[0, 3] = float("nan")
    for step in range(1, 4):
        loss = model(torch.randn(8, 4)).square().mean()
        model.zero_grad()
        loss.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
                parameter -= 0.1 * parameter.grad / 2
        if rank == 0:
            print(step, repr(loss.item()))
            sys.stdout.flush()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(work, args=(folder,), nprocs=2)
