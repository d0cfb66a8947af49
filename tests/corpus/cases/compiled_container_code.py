"""torch.compile with aot_eager: a container's own line, between two layers, takes the root of a negative number."""

import torch
from torch import nn

torch.manual_seed(0)


class Radius(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.second = nn.Linear(4, 3)

    def forward(self, x):
        return self.second((self.first(x) + 5).sqrt())


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(3, 3)
        self.radius = Radius()
        self.head = nn.Linear(3, 1)

    def forward(self, x):
        return self.head(self.radius(torch.tanh(self.stem(x))))


network = Model()
model = torch.compile(network, backend="aot_eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(1, 5):
    if step == 3:
        with torch.no_grad():
            network.radius.first.bias[1] = -8
    loss = model(torch.randn(6, 3)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, repr(loss.item()))
