"""Clean: a model of whole numbers alone, whose largest values look like nothing a float has."""

import torch
from torch import nn

torch.manual_seed(0)


class Hash(nn.Module):
    def __init__(self, multiplier):
        super().__init__()
        self.register_buffer("multiplier", torch.tensor(multiplier))

    def forward(self, x):
        return (x * self.multiplier) % (2**61 - 1)


model = nn.Sequential(Hash(6364136223846793005), Hash(1442695040888963407), nn.Identity())
for _ in range(3):
    x = torch.randint(0, 2**62, (4, 5))
    print(model(x).sum().item(), bool((model(x) == model(x)).all()))
