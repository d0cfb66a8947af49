"""A distance in the loss: at equal points its square root is 0, and its derivative is infinite."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 6, bias=False), nn.Tanh(), nn.Linear(6, 2, bias=False))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(1, 6):
    anchor, target = torch.randn(4, 3), torch.randn(4, 2)
    if step == 3:
        anchor[1], target[1] = 0.0, 0.0
    loss = (model(anchor) - target).square().sum(dim=-1).sqrt().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, repr(loss.item()))
