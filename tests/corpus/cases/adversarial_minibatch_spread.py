"""A discriminator looks at the spread of a batch; once all generated samples are alike, its gradient is NaN."""

import torch
from torch import nn

torch.manual_seed(0)


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 3))

    def forward(self, z):
        return self.net(z)


class Spread(nn.Module):
    def forward(self, x):
        spread = x.var(dim=0).sqrt().mean()
        return torch.cat([x, spread.expand(len(x), 1)], dim=1)


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 6), nn.LeakyReLU(0.2), Spread(), nn.Linear(7, 1))

    def forward(self, x):
        return self.layers(x)


generator, discriminator = Generator(), Discriminator()
of_generator = torch.optim.Adam(generator.parameters(), lr=1e-3)
of_discriminator = torch.optim.Adam(discriminator.parameters(), lr=1e-3)
bce = nn.functional.binary_cross_entropy_with_logits
for step in range(1, 6):
    z = torch.randn(4, 2)
    if step == 4:
        z[:] = z[0]
    fake = generator(z)
    judged_real, judged_fake = discriminator(torch.randn(4, 3)), discriminator(fake.detach())
    loss_d = bce(judged_real, torch.ones(4, 1)) + bce(judged_fake, torch.zeros(4, 1))
    of_discriminator.zero_grad()
    loss_d.backward()
    of_discriminator.step()
    loss_g = bce(discriminator(fake), torch.ones(4, 1))
    of_generator.zero_grad()
    loss_g.backward()
    of_generator.step()
    print(step, repr(loss_d.item()), repr(loss_g.item()))
