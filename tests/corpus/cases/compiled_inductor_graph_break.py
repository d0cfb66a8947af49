"""torch.compile with its default backend and a graph break in the middle; the layer after it overflows in exp."""

import torch
from torch import nn

torch.manual_seed(0)


class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        return x / (1 + torch.exp(-self.linear(x)))


class Growth(nn.Module):
    def forward(self, x):
        return torch.exp(x)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = Gate()
        self.growth = Growth()
        self.head = nn.Linear(4, 1)

    def forward(self, x):
        x = self.gate(x)
        torch._dynamo.graph_break()
        return self.head(self.growth(x))


model = torch.compile(Model())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(1, 5):
    x = torch.randn(6, 4)
    if step == 4:
        x[1] = 2000.0
    loss = torch.tanh(model(x)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, repr(loss.item()))
