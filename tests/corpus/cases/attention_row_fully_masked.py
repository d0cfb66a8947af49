"""A sentence that is all padding: each score in its rows is -inf, and softmax over them is NaN."""

import torch
from torch import nn

torch.manual_seed(0)
WIDTH = 8


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.projections = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x, padding):
        query, key, value = self.projections(x).chunk(3, dim=-1)
        scores = query @ key.transpose(-2, -1) / WIDTH**0.5
        scores = scores.masked_fill(padding[:, None, :], float("-inf"))
        return self.out(torch.softmax(scores, dim=-1) @ value)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.attention = Attention()

    def forward(self, x, padding):
        return x + self.attention(self.norm(x), padding)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, WIDTH)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.head = nn.Linear(WIDTH, 2)

    def forward(self, tokens):
        x, padding = self.embedding(tokens), tokens == 0
        for block in self.blocks:
            x = block(x, padding)
        return self.head(x[:, 0])


model = Encoder()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for step in range(1, 6):
    tokens = torch.randint(1, 20, (4, 6))
    tokens[:, 4:] = 0
    if step == 3:
        tokens[2] = 0
    loss = nn.functional.cross_entropy(model(tokens), torch.randint(0, 2, (4,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, repr(loss.item()))
