"""From one step on the gradients are NaN at any scale: the scaler skips for ever."""

import torch
from torch import nn

torch.manual_seed(0)


class Energy(nn.Module):
    def forward(self, x):
        return x.square().sum(dim=-1, keepdim=True).sqrt()


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.forces = nn.Linear(3, 3, bias=False)
        self.energy = Energy()
        self.out = nn.Linear(1, 1)

    def forward(self, x):
        return self.out(self.energy(self.forces(x)))


model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
for step in range(1, 9):
    x = torch.randn(4, 3)
    if step >= 3:
        x[0] = 0
    loss = model(x).square().mean()
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    print(step, repr(loss.item()), scaler.get_scale())
