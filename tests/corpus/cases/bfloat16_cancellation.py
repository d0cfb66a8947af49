"""In bfloat16 256 and 256.5 are one number: a layer that scales by the range of its input divides by 0."""

import torch
from torch import nn

torch.manual_seed(0)


class Rescale(nn.Module):
    def forward(self, x):
        low, high = x.amin(dim=-1, keepdim=True), x.amax(dim=-1, keepdim=True)
        return (x - low) / (high - low)


model = nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 4), Rescale(), nn.Linear(4, 1)).to(torch.bfloat16)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(1, 6):
    if step == 4:
        with torch.no_grad():
            model[1].weight.mul_(1e-3)
            model[1].bias.fill_(256)
    loss = model(torch.randn(3, 4, dtype=torch.bfloat16)).float().square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, repr(loss.item()))
