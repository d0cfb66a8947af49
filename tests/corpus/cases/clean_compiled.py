"""Clean: a compiled model with dropout and a causal mask inside."""

import torch
from torch import nn

torch.manual_seed(0)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.project = nn.Linear(8, 16)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        query, key = self.project(x).chunk(2, dim=-1)
        future = torch.ones(x.shape[1], x.shape[1]).triu(1).bool()
        scores = (query @ key.transpose(1, 2)).masked_fill(future, float("-inf"))
        return self.drop(torch.softmax(scores, dim=-1)) @ x


model = torch.compile(nn.Sequential(nn.Linear(4, 8), Attention(), nn.Linear(8, 1)), backend="aot_eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(1, 5):
    loss = (model(torch.randn(2, 5, 4)) - 1).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, repr(loss.item()))
