"""A penalty on the gradient of the inputs: the length of a gradient that is 0 has no derivative."""

import torch
from torch import nn

torch.manual_seed(0)
critic = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(critic.parameters(), lr=0.05)
for step in range(1, 6):
    x = torch.randn(4, 3, requires_grad=True)
    if step == 3:
        with torch.no_grad():
            critic[0].bias.fill_(-50)
    score = critic(x).mean()
    (slope,) = torch.autograd.grad(score, x, create_graph=True)
    loss = score + (slope.square().sum(dim=1).sqrt() - 1).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, repr(loss.item()))
