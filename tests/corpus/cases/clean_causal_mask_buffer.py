"""Clean: the causal mask of 0 and -inf is a buffer of the attention layer and is added to the scores."""

import torch
from torch import nn

torch.manual_seed(0)


class Attention(nn.Module):
    def __init__(self, length):
        super().__init__()
        self.query = nn.Linear(8, 8)
        self.key = nn.Linear(8, 8)
        self.value = nn.Linear(8, 8)
        self.register_buffer("mask", torch.full((length, length), float("-inf")).triu(1))

    def forward(self, x):
        scores = self.query(x) @ self.key(x).mT / 8**0.5 + self.mask
        return scores.softmax(dim=-1) @ self.value(x)


model = nn.Sequential(nn.Embedding(11, 8), Attention(6), nn.LayerNorm(8), nn.Linear(8, 11))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(1, 5):
    tokens = torch.randint(0, 11, (4, 7))
    loss = nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, repr(loss.item()))
