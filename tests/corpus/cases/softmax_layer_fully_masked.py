"""A softmax layer is handed rows that a mask has filled with -inf from end to end."""

import torch
from torch import nn

torch.manual_seed(0)


class Pooling(nn.Module):
    """Weighs the items of a set; absent items are masked."""

    def __init__(self):
        super().__init__()
        self.score = nn.Linear(6, 1)
        self.softmax = nn.Softmax(dim=-1)

    def forward(self, items, present):
        mask = torch.zeros(present.shape).masked_fill(~present, float("-inf"))
        weights = self.softmax(self.score(items).squeeze(-1) + mask)
        return (weights.unsqueeze(-1) * items).sum(dim=1)


class Basket(nn.Module):
    def __init__(self):
        super().__init__()
        self.items = nn.Linear(3, 6)
        self.pooling = Pooling()
        self.price = nn.Linear(6, 1)

    def forward(self, x, present):
        return self.price(self.pooling(torch.tanh(self.items(x)), present))


model = Basket()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(1, 7):
    present = torch.rand(5, 4) < 0.6
    present[:, 0] = True
    if step == 4:
        present[1] = False
    loss = model(torch.randn(5, 4, 3), present).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, repr(loss.item()))
