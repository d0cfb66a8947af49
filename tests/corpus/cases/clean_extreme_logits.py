"""Clean: logits of thousands in binary_cross_entropy_with_logits and logsigmoid, which are made for them."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 4), nn.LogSigmoid(), nn.Linear(4, 1))
criterion = nn.BCEWithLogitsLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
for step in range(1, 6):
    logits = model(torch.randn(8, 3) * 10.0 ** (step + 1)).squeeze(-1)
    loss = criterion(logits, (torch.rand(8) < 0.5).float())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, repr(loss.item()), repr(logits.abs().max().item()))
