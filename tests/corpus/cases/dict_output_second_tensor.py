"""A layer returns a dict; its mean is fine, its log variance is the logarithm of 0."""

import torch
from torch import nn

torch.manual_seed(0)


class Gaussian(nn.Module):
    def __init__(self):
        super().__init__()
        self.mean = nn.Linear(4, 2)
        self.variance = nn.Linear(4, 2)

    def forward(self, x):
        return {"mean": self.mean(x), "log_variance": torch.relu(self.variance(x)).log()}


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(3, 4)
        self.gaussian = Gaussian()

    def forward(self, x):
        return self.gaussian(torch.tanh(self.body(x)))


model = Network()
with torch.no_grad():
    model.gaussian.variance.bias.fill_(5)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(1, 6):
    if step == 3:
        with torch.no_grad():
            model.gaussian.variance.bias[1] = -5
    out = model(torch.randn(4, 3))
    loss = (out["log_variance"] + out["mean"].square() / out["log_variance"].exp()).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, repr(loss.item()))
