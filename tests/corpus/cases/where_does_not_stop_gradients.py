"""torch.where picks the safe branch, but the gradient of the other one is 0 * inf."""

import torch
from torch import nn

torch.manual_seed(0)


class Compress(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.outer = nn.Linear(4, 4)

    def forward(self, x):
        x = self.inner(x)
        x = torch.where(x > 0, x.pow(0.3), torch.zeros_like(x))
        return self.outer(x)


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(4, 4)
        self.layers = nn.ModuleDict({"compress": Compress()})
        self.head = nn.Linear(4, 1)

    def forward(self, x):
        return self.head(self.layers["compress"](self.stem(x)))


model = Regressor()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
with torch.no_grad():
    model.layers["compress"].inner.bias.fill_(30)
for step in range(1, 5):
    x = torch.randn(8, 4)
    if step == 3:
        x *= 1000
    loss = model(x).abs().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, repr(loss.item()))
