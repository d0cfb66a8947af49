"""Normalised gradient descent by hand under no_grad: a gradient of 0 is divided by its length."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
for step in range(1, 6):
    x = torch.randn(8, 3) if step != 3 else torch.zeros(8, 3)
    loss = (model(x) - 1).square().mean()
    loss.backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 0.05 * parameter.grad / parameter.grad.norm()
            parameter.grad = None
    print(step, repr(loss.item()))
