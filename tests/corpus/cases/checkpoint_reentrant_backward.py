"""A block under reentrant checkpointing: its gradient, made while it is run again, is NaN at 0."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)


class RootMeanSquare(nn.Module):
    def forward(self, x):
        return x * x.square().mean(dim=-1, keepdim=True).sqrt()


class Stack(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(4, 6, bias=False)
        self.layers = nn.Sequential(nn.Linear(6, 6, bias=False), nn.Tanh(), RootMeanSquare(), nn.Linear(6, 6))
        self.head = nn.Linear(6, 1)

    def forward(self, x):
        return self.head(checkpoint(self.layers, self.stem(x), use_reentrant=True))


model = Stack()
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
for step in range(1, 5):
    x = torch.randn(5, 4)
    if step == 2:
        x[4] = 0
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, repr(loss.item()))
