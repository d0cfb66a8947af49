"""Micro-batches add up their gradients in half precision; each is finite, the sum of three is not."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 4), nn.Hardtanh(), nn.Linear(4, 1, bias=False)).half()
with torch.no_grad():
    model[0].bias.fill_(10)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
for update in range(1, 4):
    weight = 100.0 if update == 1 else 7000.0
    for part in range(4):
        loss = model(torch.rand(4, 4).half()).float().sum() * weight
        loss.backward()
        print(update, part, repr(loss.item()))
    optimizer.step()
    optimizer.zero_grad()
