"""One batch of the data set holds a NaN."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.BatchNorm1d(6), nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
inputs = torch.randn(6, 16, 6)
inputs[3, 5, 2] = float("nan")
for step in range(1, 7):
    loss = model(inputs[step - 1]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, repr(loss.item()))
