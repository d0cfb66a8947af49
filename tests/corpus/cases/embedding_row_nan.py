"""A row of a pretrained embedding is NaN from the start; the token first occurs in the third batch."""

import torch
from torch import nn

torch.manual_seed(0)
vectors = torch.randn(10, 6)
vectors[7] = float("nan")
model = nn.Sequential(nn.EmbeddingBag.from_pretrained(vectors, freeze=True, mode="sum"), nn.Linear(6, 1))
optimizer = torch.optim.SGD(model[1].parameters(), lr=0.1)
for step in range(1, 5):
    tokens = torch.randint(0, 6, (4, 3))
    if step == 3:
        tokens[2, 1] = 7
    loss = model(tokens).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, repr(loss.item()))
