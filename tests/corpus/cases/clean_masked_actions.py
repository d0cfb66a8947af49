"""Clean: a policy gives actions that are not allowed a logit of -inf; the loss never asks for those."""

import torch
from torch import nn

torch.manual_seed(0)


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.Tanh())
        self.actions = nn.Linear(8, 5)

    def forward(self, state, allowed):
        return self.actions(self.body(state)).masked_fill(~allowed, float("-inf"))


model = Policy()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(1, 6):
    allowed = torch.rand(8, 5) < 0.7
    allowed[:, 2] = True
    logits = model(torch.randn(8, 4), allowed)
    loss = nn.functional.cross_entropy(logits, torch.full((8,), 2))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, repr(loss.item()))
