"""A missing label was read as NaN; the model itself and its inputs are fine."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
labels = torch.randn(5, 16, 1)
labels[2, 7] = float("nan")
for step in range(1, 6):
    prediction = model(torch.randn(16, 4))
    loss = nn.functional.smooth_l1_loss(prediction, labels[step - 1])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, repr(loss.item()))
