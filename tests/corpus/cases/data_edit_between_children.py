"""An output is edited through .data, behind autograd's back, before the next layer reads it."""

import torch
from torch import nn

torch.manual_seed(0)


class Pruned(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 6)
        self.second = nn.Linear(6, 1)
        self.kept = 6

    def forward(self, x):
        hidden = self.first(x)
        hidden.data[:, self.kept :] = 0
        hidden.data.mul_(torch.tensor(6.0) / self.kept)
        return self.second(hidden)


model = Pruned()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(1, 9):
    loss = model(torch.randn(5, 4)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    model.kept -= 1
    print(step, repr(loss.item()))
