"""torch.compile with aot_eager: the compiled backward pass makes a NaN of the length of a zero vector."""

import torch
from torch import nn

torch.manual_seed(0)


class Length(nn.Module):
    def forward(self, x):
        return x.square().sum(dim=-1, keepdim=True).sqrt()


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(4, 4, bias=False)
        self.length = Length()
        self.head = nn.Linear(1, 1)

    def forward(self, x):
        return self.head(self.length(torch.tanh(self.stem(x))))


model = torch.compile(Model(), backend="aot_eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(1, 5):
    x = torch.randn(6, 4)
    if step == 3:
        x[0] = 0
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, repr(loss.item()))
