"""A recurrent cell without a squashing function, unrolled 40 times in each step; late calls overflow."""

import torch
from torch import nn

torch.manual_seed(0)


class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.tensor(1.5))

    def forward(self, x, state):
        return x + self.gain * state * state.abs().clamp(min=1)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Linear(2, 3)
        self.cell = Cell()
        self.readout = nn.Linear(3, 1)

    def forward(self, sequence):
        state = sequence.new_zeros(sequence.shape[1], 3)
        for item in sequence:
            state = self.cell(torch.tanh(self.encode(item)), state)
        return self.readout(torch.tanh(state))


model = Recurrent()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
for step in range(1, 5):
    length = 3 if step < 3 else 40
    loss = model(torch.randn(length, 2, 2)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, repr(loss.item()))
