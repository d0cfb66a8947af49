"""A batch in which every target is ignore_index: the mean over no element is 0/0."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Embedding(12, 8), nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 12))
criterion = nn.CrossEntropyLoss(ignore_index=-100)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for step in range(1, 7):
    tokens = torch.randint(0, 12, (2, 5))
    targets = tokens.roll(-1, dims=1)
    targets[:, -1] = -100
    if step == 4:
        targets[:] = -100
    loss = criterion(model(tokens).flatten(0, 1), targets.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, repr(loss.item()))
