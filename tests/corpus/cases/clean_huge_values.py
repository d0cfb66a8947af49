"""Clean: values of 1e30, far beyond any usual threshold, but finite throughout."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-38)
for step in range(1, 5):
    loss = model(torch.randn(8, 4) * 1e30).abs().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, repr(loss.item()))
