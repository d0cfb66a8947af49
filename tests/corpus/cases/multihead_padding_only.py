"""nn.MultiheadAttention with a key_padding_mask that leaves one sample no key at all."""

import torch
from torch import nn

torch.manual_seed(0)


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.norm = nn.LayerNorm(8)

    def forward(self, query, memory, ignored):
        attended, _ = self.attention(query, memory, memory, key_padding_mask=ignored)
        return self.norm(query + attended)


model = Reader()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(1, 5):
    ignored = torch.zeros(3, 5, dtype=torch.bool)
    ignored[:, 3:] = True
    if step == 2:
        ignored[0] = True
    out = model(torch.randn(3, 2, 8), torch.randn(3, 5, 8), ignored)
    loss = (out - 1).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, repr(loss.item()))
