"""A router returns a named tuple; the load of an expert that got no token is 0/0."""

from typing import NamedTuple

import torch
from torch import nn

torch.manual_seed(0)


class Routing(NamedTuple):
    weights: torch.Tensor
    confidence: torch.Tensor


class Router(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(4, 3)

    def forward(self, x):
        weights = torch.softmax(self.gate(x), dim=-1)
        best, chosen = weights.max(dim=-1)
        sent = nn.functional.one_hot(chosen, 3).float()
        return Routing(weights, (best.unsqueeze(-1) * sent).sum(dim=0) / sent.sum(dim=0))


class Mixture(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = Router()
        self.experts = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])

    def forward(self, x):
        routing = self.router(x)
        out = torch.stack([expert(x) for expert in self.experts], dim=1)
        return (out * routing.weights.unsqueeze(-1)).sum(dim=1)


model = Mixture()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(1, 6):
    x = torch.randn(24, 4) * 3
    if step >= 4:
        x[:] = x[:1]
    loss = (model(x) - x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, repr(loss.item()))
