"""Clean: causal attention; the future is filled with -inf ahead of a softmax layer."""

import torch
from torch import nn

torch.manual_seed(0)


class CausalAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.projections = nn.Linear(8, 24)
        self.softmax = nn.Softmax(dim=-1)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        query, key, value = self.projections(x).chunk(3, dim=-1)
        future = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        scores = (query @ key.mT / 8**0.5).masked_fill(future, -torch.inf)
        return self.drop(self.softmax(scores)) @ value


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.attention = CausalAttention()
        self.head = nn.Linear(8, 11)

    def forward(self, tokens):
        x = self.embedding(tokens)
        return self.head(x + self.attention(x))


model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for step in range(1, 5):
    tokens = torch.randint(0, 11, (4, 7))
    loss = nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, repr(loss.item()))
