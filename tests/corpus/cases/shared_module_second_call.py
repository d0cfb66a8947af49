"""One normalisation layer serves two towers; in its second call of the step it divides by 0."""

import torch
from torch import nn

torch.manual_seed(0)


class ByMaximum(nn.Module):
    def forward(self, x):
        return x / x.abs().amax(dim=-1, keepdim=True)


class TwoTowers(nn.Module):
    def __init__(self):
        super().__init__()
        self.user = nn.Linear(4, 6, bias=False)
        self.item = nn.Linear(4, 6, bias=False)
        self.norm = ByMaximum()

    def forward(self, user, item):
        return (self.norm(self.user(user)) * self.norm(self.item(item))).sum(dim=-1)


model = TwoTowers()
optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
for step in range(1, 6):
    item = torch.randn(4, 4)
    if step == 2:
        item[3] = 0
    loss = nn.functional.binary_cross_entropy_with_logits(model(torch.randn(4, 4), item), torch.ones(4))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, repr(loss.item()))
