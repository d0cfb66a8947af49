"""Autocast to half precision: activations of 2e5 do not fit, though the float32 input does."""

import torch
from torch import nn

torch.manual_seed(0)


class Tower(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(6, 16)
        self.mixing = nn.Linear(16, 16)
        self.head = nn.Linear(16, 1)

    def forward(self, x):
        x = torch.relu(self.stem(x))
        x = torch.relu(self.mixing(x))
        return self.head(x.float().log1p())


model = Tower()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(1, 6):
    x = torch.randn(4, 6) * (1.0 if step < 4 else 1e3)
    if step == 4:
        with torch.no_grad():
            model.mixing.weight += 10
    with torch.autocast("cpu", dtype=torch.float16):
        loss = model(x).float().square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, repr(loss.item()))
