"""Clean: the loss leaves NaN labels out, and metrics computed beside the model are NaN and inf."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
best = torch.tensor(float("inf"))
for step in range(1, 6):
    labels = torch.randn(8, 1)
    labels[::3] = float("nan")
    prediction = model(torch.randn(8, 4))
    known = ~labels.isnan()
    loss = (prediction[known] - labels[known]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        best = torch.minimum(best, loss.detach())
        precision = (prediction > 100).float().sum() / (prediction > 1000).float().sum()
        perplexity = (loss * 1000).exp()
    print(step, repr(loss.item()), repr(best.item()), repr(precision.item()), repr(perplexity.item()))
