"""A block wrapped by checkpoint_wrapper, with evaluations between the updates: one layer's gradient is 0/0 backward."""

import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

torch.manual_seed(0)


class Softsign(nn.Module):
    def forward(self, x):
        return x / (1 + x.pow(2).pow(0.5))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(3, 4, bias=False)
        self.block = checkpoint_wrapper(nn.Sequential(nn.Linear(4, 4, bias=False), Softsign()))
        self.head = nn.Linear(4, 1)

    def forward(self, x):
        return self.head(self.block(self.stem(x)))


model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
held_out = torch.randn(8, 3)
for epoch in range(1, 5):
    x = torch.randn(4, 3)
    if epoch == 3:
        x[1] = 0
    loss = (model(x) - 1).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        print(epoch, repr(loss.item()), repr(model(held_out).mean().item()))
