"""The yardstick: a small transformer's training step on a CPU; prints the median step in milliseconds.

Behind DistributedModelParallel, since the stock logger attaches to nothing else. WIDTH, LAYERS and STEPS size it.
"""

import logging
import os
import socket
import time
import warnings

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import gelu, scaled_dot_product_attention
from torchrec.distributed.model_parallel import DistributedModelParallel

WIDTH = int(os.environ.get("WIDTH", "256"))
LAYERS = int(os.environ.get("LAYERS", "6"))
STEPS = int(os.environ.get("STEPS", "40"))
BATCH, LENGTH, HEADS, CLASSES, WARM_UP = 8, 128, 4, 64, 5


class Block(nn.Module):
    """Attention and a feed-forward part, each with a residual. x_BLW: batch, length, width."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x_BLW: torch.Tensor) -> torch.Tensor:
        heads = self.qkv(self.norm1(x_BLW)).view(BATCH, LENGTH, 3, HEADS, WIDTH // HEADS)
        q, k, v = heads.permute(2, 0, 3, 1, 4)
        mixed = scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(BATCH, LENGTH, WIDTH)
        x_BLW = x_BLW + self.out(mixed)
        return x_BLW + self.down(gelu(self.up(self.norm2(x_BLW))))


def main() -> None:
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    torch.set_num_threads(2)
    layers = nn.Sequential(*[Block() for _ in range(LAYERS)], nn.Linear(WIDTH, CLASSES))
    model = DistributedModelParallel(layers, device=torch.device("cpu"), init_data_parallel=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    inputs = torch.randn(BATCH, LENGTH, WIDTH)
    times = []
    for _ in range(STEPS):
        start = time.perf_counter()
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()
        times.append(time.perf_counter() - start)
    kept = sorted(times[WARM_UP:])
    print(f"STEP_MS {1e3 * kept[len(kept) // 2]:.3f}", flush=True)


if __name__ == "__main__":
    main()
