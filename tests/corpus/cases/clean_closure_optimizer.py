"""Clean: L-BFGS calls the model several times in each of its steps."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1))
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=4, line_search_fn="strong_wolfe")
x = torch.randn(16, 2)
y = (x[:, :1] * x[:, 1:]).sin()


def closure():
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    return loss


for step in range(1, 4):
    print(step, repr(optimizer.step(closure).item()))
