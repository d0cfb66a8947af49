"""A container divides a child's output in place by a count of 0, before it calls the next child."""

import torch
from torch import nn

torch.manual_seed(0)


class Pool(nn.Module):
    def __init__(self):
        super().__init__()
        self.project = nn.Linear(4, 6)
        self.mix = nn.Linear(6, 6)

    def forward(self, x, valid):
        hidden = (self.project(x) * valid.unsqueeze(-1)).sum(dim=1)
        hidden = self.mix(hidden)
        hidden /= valid.sum(dim=1, keepdim=True)
        return torch.tanh(self.mix(hidden))


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Module()
        self.encoder.pool = Pool()
        self.head = nn.Linear(6, 2)

    def forward(self, x, valid):
        return self.head(self.encoder.pool(x, valid))


model = Classifier()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(1, 5):
    valid = torch.ones(3, 4)
    valid[:, 2:] = 0
    if step == 3:
        valid[1] = 0
    loss = nn.functional.cross_entropy(model(torch.randn(3, 4, 4), valid), torch.tensor([0, 1, 0]))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, repr(loss.item()))
