"""Adam with eps=0: rows of an embedding that no batch has used have a gradient of 0, and move by 0/0."""

import torch
from torch import nn

torch.manual_seed(0)


class Recommender(nn.Module):
    def __init__(self):
        super().__init__()
        self.users = nn.Embedding(6, 4)
        self.items = nn.Embedding(8, 4)
        self.bias = nn.Linear(4, 1)

    def forward(self, user, item):
        return self.bias(self.users(user) * self.items(item)).squeeze(-1)


model = Recommender()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, eps=0)
for step in range(1, 5):
    user, item = torch.arange(6), torch.arange(6) + (2 if step == 3 else 1)
    loss = (model(user, item) - torch.randn(6)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, repr(loss.item()))
