"""Binary cross entropy by hand: sigmoid saturates at 1, and the loss takes the logarithm of 1 - 1."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1), nn.Sigmoid())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(1, 6):
    if step == 4:
        with torch.no_grad():
            model[2].bias += 200
    probability = model(torch.randn(8, 4)).squeeze(-1)
    target = torch.randint(0, 2, (8,)).float()
    loss = -(target * probability.log() + (1 - target) * (1 - probability).log()).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, repr(loss.item()))
