"""Adam on half precision weights: eps=1e-8 and the squares of small gradients both round to 0."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)).half()
model[0].requires_grad_(False)
optimizer = torch.optim.Adam(model[2].parameters(), lr=1e-3)
for step in range(1, 5):
    loss = model(torch.randn(8, 4).half()).float().mean() * (1.0 if step < 3 else 1e-5)
    optimizer.zero_grad()
    loss.backward()
    if step == 3:
        optimizer.state.clear()
    optimizer.step()
    print(step, repr(loss.item()))
