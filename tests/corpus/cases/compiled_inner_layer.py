"""torch.compile of a whole model: a layer inside divides by the spread of a row that has none."""

import torch
from torch import nn

torch.manual_seed(0)


class Normalise(nn.Module):
    def forward(self, x):
        return (x - x.mean(dim=-1, keepdim=True)) / x.std(dim=-1, keepdim=True)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4, bias=False)
        self.norm = Normalise()

    def forward(self, x):
        return torch.tanh(self.norm(self.linear(x)))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(Block(), Block())
        self.head = nn.Linear(4, 1)

    def forward(self, x):
        return self.head(self.blocks(x))


model = torch.compile(Model(), backend="eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(1, 5):
    x = torch.randn(6, 4)
    if step == 3:
        x[2] = 0
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, repr(loss.item()))
