"""The last batch holds one sample: the unbiased spread that the model reports beside its logits is NaN."""

from collections import OrderedDict

import torch
from torch import nn

torch.manual_seed(0)


class ModelOutput(OrderedDict):
    pass


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(5, 8), nn.SiLU())
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        features = self.backbone(x)
        return ModelOutput(logits=self.head(features), spread=features.detach().std(dim=0))


model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.utils.data.TensorDataset(torch.randn(13, 5), torch.randint(0, 3, (13,)))
for epoch in range(2):
    for x, y in torch.utils.data.DataLoader(data, batch_size=4):
        loss = nn.functional.cross_entropy(model(x)["logits"], y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(epoch, len(x), repr(loss.item()))
