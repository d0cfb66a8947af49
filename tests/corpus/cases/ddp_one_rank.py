"""DistributedDataParallel on two ranks: only the second rank's shard holds the sample that cannot be normalised."""

import atexit
import os

import torch
import torch.distributed as dist
from torch import nn

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)


class Unit(nn.Module):
    def forward(self, x):
        return x / x.norm(dim=-1, keepdim=True)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8, bias=False), nn.ReLU())
        self.unit = Unit()
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        return self.head(self.unit(self.body(x)))


model = nn.parallel.DistributedDataParallel(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(100 + int(os.environ["RANK"]))
for step in range(1, 5):
    x = torch.randn(4, 4)
    if rank == 1 and step == 2:
        x[3] = 0
    loss = nn.functional.cross_entropy(model(x), torch.tensor([0, 1, 1, 0]))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if rank == 0:
        print(step, repr(loss.item()), flush=True)
dist.destroy_process_group()
# gloo's threads may still be ending, and torch 2.13 then aborts one exit in five.
atexit._run_exitfuncs()
os._exit(0)
