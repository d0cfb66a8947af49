"""Clean: a GradScaler starts far too high and finds its scale by skipping the first steps."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24)
for step in range(1, 16):
    with torch.autocast("cpu", dtype=torch.float16):
        out = model(torch.randn(8, 4))
    loss = (out.float() - 1).square().mean()
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    print(step, repr(loss.item()), scaler.get_scale())
