"""A half precision layer: the gradient of its weight overflows, that of its input does not."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8), nn.Linear(8, 1)).half()
with torch.no_grad():
    model[2].weight.mul_(1e-2)
    model[2].bias.fill_(900)
    model[3].weight.mul_(1e-2)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-8)
for step in range(1, 5):
    scale = 1.0 if step < 3 else 16.0
    out = model(torch.randn(8, 4).half()).float()
    loss = (out * scale).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, repr(loss.item()))
