"""Too large a learning rate: weights grow step by step until the product of two layers overflows."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=30.0, momentum=0.9)
for step in range(1, 13):
    x = torch.randn(16, 4)
    loss = nn.functional.l1_loss(model(x), x[:, :1])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, repr(loss.item()))
