"""Text generation under inference_mode: a schedule lets the temperature reach 0, and softmax sees inf - inf."""

import torch
from torch import nn

torch.manual_seed(0)


class Sampler(nn.Module):
    def forward(self, logits, temperature):
        scaled = logits / temperature
        return torch.softmax(scaled, dim=-1)


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(9, 6)
        self.head = nn.Linear(6, 9)
        self.sampler = Sampler()

    def forward(self, token, temperature):
        return self.sampler(self.head(self.embedding(token)), temperature)


model = Generator().eval()
token = torch.tensor([1])
with torch.inference_mode():
    for temperature in (1.0, 0.5, 0.25, 0.0, 0.0):
        probabilities = model(token, temperature)
        token = torch.nan_to_num(probabilities).argmax(dim=-1)
        print(temperature, repr(probabilities.sum().item()), token.item())
