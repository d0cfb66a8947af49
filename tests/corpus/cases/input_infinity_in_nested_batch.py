"""A ratio feature with an empty denominator is inf, deep inside a batch that is passed by keyword."""

import torch
from torch import nn

torch.manual_seed(0)


class Ranking(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = nn.Embedding(10, 4)
        self.dense = nn.Linear(3, 4)
        self.score = nn.Linear(4, 1)

    def forward(self, *, batch):
        features = torch.stack([part["ratios"] for part in batch["documents"]])
        return self.score(torch.tanh(self.query(batch["query"]) + self.dense(features))).squeeze(-1)


model = Ranking()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(1, 5):
    clicks = torch.rand(4, 3)
    views = torch.rand(4, 3) + 1
    if step == 2:
        views[1, 1] = 0
    documents = [{"id": index, "ratios": row} for index, row in enumerate(clicks / views)]
    out = model(batch={"query": torch.randint(0, 10, (4,)), "documents": documents, "day": "monday"})
    loss = nn.functional.softplus(-out).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, repr(loss.item()))
