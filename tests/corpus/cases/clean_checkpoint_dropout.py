"""Clean: blocks with dropout under activation checkpointing, reentrant and not."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

torch.manual_seed(0)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(4, 8)
        self.one = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.3), nn.GELU())
        self.rest = nn.Sequential(*(nn.Linear(8, 8) for _ in range(4)))
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        x = checkpoint(self.one, self.stem(x), use_reentrant=True)
        return self.head(checkpoint_sequential(self.rest, 2, x, use_reentrant=False))


model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(1, 6):
    loss = (model(torch.randn(8, 4)) - 1).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, repr(loss.item()))
