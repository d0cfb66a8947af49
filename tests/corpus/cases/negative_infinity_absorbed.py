"""The logarithm of a count of 0 is -inf, which the next layer squashes to -1. It is no mask, and leaves no trace."""

import torch
from torch import nn

torch.manual_seed(0)


class LogCount(nn.Module):
    def forward(self, x):
        return x.log()


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.log_count = LogCount()
        self.squash = nn.Tanh()
        self.head = nn.Linear(4, 1)

    def forward(self, counts):
        return self.head(self.squash(self.log_count(counts)))


model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(1, 6):
    counts = torch.randint(1, 5, (6, 4)).float()
    if step == 3:
        counts[2, 1] = 0
    loss = (model(counts) - 1).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, repr(loss.item()))
