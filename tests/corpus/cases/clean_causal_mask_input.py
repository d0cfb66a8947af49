"""Clean: a transformer encoder that is given a causal mask of 0 and -inf, in training and in evaluation."""

import torch
from torch import nn

torch.manual_seed(0)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        layer = nn.TransformerEncoderLayer(8, 2, dim_feedforward=16, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, num_layers=2)
        self.head = nn.Linear(8, 11)

    def forward(self, tokens, mask):
        return self.head(self.encoder(self.embedding(tokens), mask=mask))


model = Model()
mask = nn.Transformer.generate_square_subsequent_mask(6)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for step in range(1, 5):
    tokens = torch.randint(0, 11, (4, 7))
    loss = nn.functional.cross_entropy(model(tokens[:, :-1], mask).flatten(0, 1), tokens[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, repr(loss.item()))
model.eval()
with torch.no_grad():
    print(repr(model(tokens[:, :-1], mask).sum().item()))
