"""Gradients are clipped layer by layer by hand; a layer behind a closed gate has a norm of 0."""

import torch
from torch import nn

torch.manual_seed(0)


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Linear(4, 4)
        self.side = nn.Linear(4, 4, bias=False)
        self.out = nn.Linear(4, 1)
        self.gate = 1.0

    def forward(self, x):
        return self.out(torch.tanh(self.main(x)) + self.gate * self.side(x))


model = Gated()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(1, 6):
    model.gate = 1.0 if step < 4 else 0.0
    loss = (model(torch.randn(8, 4)) - 1).square().mean()
    optimizer.zero_grad()
    loss.backward()
    for parameter in model.parameters():
        parameter.grad *= 0.5 / parameter.grad.norm()
    optimizer.step()
    print(step, repr(loss.item()))
