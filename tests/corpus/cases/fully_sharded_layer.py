"""fully_shard (FSDP2) on one rank: a layer inside a sharded block takes the logarithm of a negative number."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

torch.set_num_threads(1)
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
torch.manual_seed(0)


class Logarithm(nn.Module):
    def forward(self, x):
        return x.log()


model = nn.Sequential(
    nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), Logarithm()), nn.Sequential(nn.Tanh(), nn.Linear(4, 1))
)
with torch.no_grad():
    model[1][0].bias.fill_(10)
mesh = init_device_mesh("cpu", (1,))
for block in (model[1], model[2]):
    fully_shard(block, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(1, 5):
    x = torch.randn(3, 4)
    if step == 3:
        x *= 1000
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, repr(loss.item()))
dist.destroy_process_group()
