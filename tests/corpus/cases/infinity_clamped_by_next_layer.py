"""exp overflows in one layer, and the next clamps what it gets: nothing is wrong with output or loss."""

import torch
from torch import nn

torch.manual_seed(0)


class Exponential(nn.Module):
    def forward(self, x):
        return x.exp()


class Clamp(nn.Module):
    def forward(self, x):
        return x.clamp(max=10.0)


class Rate(nn.Module):
    def __init__(self):
        super().__init__()
        self.log_rate = nn.Linear(3, 2)
        self.exp = Exponential()
        self.clamp = Clamp()

    def forward(self, x):
        return self.clamp(self.exp(self.log_rate(x)))


class Poisson(nn.Module):
    def __init__(self):
        super().__init__()
        self.rate = Rate()

    def forward(self, x):
        return self.rate(x)


model = Poisson().eval()
for step in range(1, 6):
    with torch.no_grad():
        x = torch.ones(2, 3) * (1 if step < 4 else 400)
        model.rate.log_rate.weight.abs_()
        print(step, repr(model(x).sum().item()))
