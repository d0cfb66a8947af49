"""A momentum of 900 where 0.9 was meant: the weights run up until an update does not fit in float32."""

import torch
from torch import nn

torch.manual_seed(0)


class Scorer(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Linear(4, 4)
        self.score = nn.Linear(4, 1, bias=False)

    def forward(self, x):
        return self.score(torch.sigmoid(self.features(x)) * 1e-9)


model = Scorer()
optimizer = torch.optim.SGD(model.score.parameters(), lr=100.0, momentum=900.0)
for step in range(1, 20):
    loss = -model(torch.randn(8, 4)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, repr(loss.item()))
