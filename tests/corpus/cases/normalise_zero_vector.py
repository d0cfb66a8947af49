"""A length in a denominator, kept from 0 by a small number: its gradient at 0 is NaN all the same.

The ReLU before it blocks that NaN, so that neither the weights nor the loss ever show it.
"""

import torch
from torch import nn

torch.manual_seed(0)


class UnitLength(nn.Module):
    def forward(self, x):
        return x / (x.square().sum(dim=-1, keepdim=True).sqrt() + 1e-6)


class Embedder(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(5, 8, bias=False), nn.ReLU())
        self.unit = UnitLength()
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.unit(self.body(x)))


model = Embedder()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(1, 5):
    x = torch.randn(6, 5)
    if step == 2:
        x[3] = 0
    loss = nn.functional.cross_entropy(model(x), torch.randint(0, 3, (6,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, repr(loss.item()))
