"""A container's own arithmetic makes NaN, and the layer after it replaces NaN by 0: the loss stays finite."""

import torch
from torch import nn

torch.manual_seed(0)


class ReplaceNan(nn.Module):
    def forward(self, x):
        return torch.nan_to_num(x)


class Standardise(nn.Module):
    def __init__(self):
        super().__init__()
        self.expand = nn.Linear(3, 6)
        self.replace = ReplaceNan()

    def forward(self, x):
        x = self.expand(x)
        centred = x - x.mean(dim=0)
        return self.replace(centred.detach() / centred.detach().square().mean(dim=0).sqrt()) + x


model = nn.Sequential(nn.Linear(2, 3), Standardise(), nn.Linear(6, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(1, 6):
    x = torch.randn(4, 2)
    if step == 3:
        x[:] = x[0]
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, repr(loss.item()))
