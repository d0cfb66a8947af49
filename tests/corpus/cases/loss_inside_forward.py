"""The model computes its own loss, as language models of popular libraries do, here over ignored targets alone."""

from collections import OrderedDict

import torch
from torch import nn

torch.manual_seed(0)


class ModelOutput(OrderedDict):
    """A mapping whose values are attributes as well."""

    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


class LanguageModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(16, 8)
        self.hidden = nn.GRU(8, 8, batch_first=True)
        self.head = nn.Linear(8, 16)

    def forward(self, tokens, labels):
        logits = self.head(self.hidden(self.embedding(tokens))[0])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)
        return ModelOutput(logits=logits, loss=loss)


model = LanguageModel()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for step in range(1, 6):
    tokens = torch.randint(0, 16, (2, 6))
    labels = tokens.roll(-1, dims=1) if step != 3 else torch.full_like(tokens, -100)
    output = model(tokens=tokens, labels=labels)
    optimizer.zero_grad()
    output.loss.backward()
    optimizer.step()
    print(step, repr(output.loss.item()))
