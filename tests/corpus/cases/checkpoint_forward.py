"""A block under (non-reentrant) activation checkpointing takes the logarithm of a negative number."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)


class LogScale(nn.Module):
    def forward(self, x):
        return torch.log(1 + x)


class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(4, 6)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(6, 6), nn.Sigmoid(), LogScale()) for _ in range(3))
        self.head = nn.Linear(6, 1)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return self.head(x)


model = Deep()
model.blocks[1][1] = nn.Identity()
with torch.no_grad():
    model.blocks[1][0].bias.fill_(4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
for step in range(1, 5):
    x = torch.randn(5, 4)
    if step == 3:
        with torch.no_grad():
            model.blocks[1][0].bias[2] = -6
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, repr(loss.item()))
