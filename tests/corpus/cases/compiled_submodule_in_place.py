"""Only the encoder is compiled, with module.compile(); its second layer works with a temperature that reaches 0."""

import torch
from torch import nn

torch.manual_seed(0)


class Sharpen(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("temperature", torch.tensor(0.75))

    def forward(self, x):
        return torch.softmax(x / self.temperature, dim=-1)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(4, 5), Sharpen(), nn.Linear(5, 5))
        self.head = nn.Linear(5, 1)

    def forward(self, x):
        return self.head(self.encoder(x))


model = Model()
model.encoder.compile(backend="eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(1, 6):
    loss = model(torch.randn(3, 4)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    model.encoder[1].temperature -= 0.25
    print(step, repr(loss.item()))
