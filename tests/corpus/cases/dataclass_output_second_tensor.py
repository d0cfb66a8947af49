"""An encoder returns a dataclass; the scale beside its (finite) mean overflows in exp."""

from dataclasses import dataclass

import torch
from torch import nn

torch.manual_seed(0)


@dataclass
class Posterior:
    mean: torch.Tensor
    scale: torch.Tensor
    name: str = "posterior"


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(4, 4)

    def forward(self, x):
        mean, log_scale = self.net(x).chunk(2, dim=-1)
        return Posterior(mean, (log_scale * 30).exp())


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()
        self.decoder = nn.Linear(2, 4)

    def forward(self, x):
        posterior = self.encoder(x)
        return self.decoder(posterior.mean), posterior


model = Autoencoder()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(1, 6):
    x = torch.randn(3, 4) * (1.0 if step < 3 else 20.0)
    rebuilt, posterior = model(x)
    loss = (rebuilt - x).square().mean() + 1e-30 * posterior.scale.mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, repr(loss.item()))
