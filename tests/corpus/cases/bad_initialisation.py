"""An initialiser scales each row to unit length; a row of zeros becomes NaN before training begins."""

import torch
from torch import nn

torch.manual_seed(0)


class Prototypes(nn.Module):
    def __init__(self):
        super().__init__()
        weight = torch.randn(5, 4)
        weight[3] = 0
        self.weight = nn.Parameter(weight / weight.norm(dim=1, keepdim=True))

    def forward(self, x):
        return x @ self.weight.T


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(3, 4)
        self.metric = nn.Sequential(nn.Tanh(), Prototypes())

    def forward(self, x):
        return self.metric(self.encoder(x))


model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(1, 4):
    loss = nn.functional.cross_entropy(model(torch.randn(6, 3)), torch.randint(0, 5, (6,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, repr(loss.item()))
