"""Weight normalisation of a layer whose direction has a row of zeros: the weight is 0/0."""

import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

torch.manual_seed(0)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(4, 6)
        self.out = weight_norm(nn.Linear(6, 2))

    def forward(self, x):
        return self.out(torch.relu(self.hidden(x)))


model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(1, 5):
    if step == 3:
        with torch.no_grad():
            model.out.parametrizations.weight.original1[1] = 0
    loss = nn.functional.cross_entropy(model(torch.randn(4, 4)), torch.tensor([0, 1, 1, 0]))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, repr(loss.item()))
