"""Small distributed training scripts. Each makes its process group without a port, so that runs never collide."""

#: A DistributedDataParallel script. Says on stderr when the model has been built.
DDP = """
import sys
import torch
import torch.distributed as dist
from torch import nn
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
torch.manual_seed(0)
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)))
print("model built", file=sys.stderr, flush=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(1, 4):
    optimizer.zero_grad()
    loss = model(torch.randn(8, 4)).square().mean()
    loss.backward()
    optimizer.step()
    print(step, loss.item(), flush=True)
# While the group lives: else torch joins gloo's threads as it frees the model, holding the GIL they may wait for.
del model
dist.destroy_process_group()
"""

#: A DistributedModelParallel recommender that grows until it overflows. --lr and --steps as in a plain script.
DMP = """
import argparse, logging, os, sys, warnings
warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=2.0)
parser.add_argument("--steps", type=int, default=12)
args = parser.parse_args()
import torch
import torch.distributed as dist
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor
from torchrec.distributed.model_parallel import DistributedModelParallel
from torchrec.models.dlrm import DLRM
torch.set_num_threads(1)
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
torch.manual_seed(0)
tables = [
    EmbeddingBagConfig(name=f"t{i}", embedding_dim=8, num_embeddings=100, feature_names=[f"f{i}"]) for i in (1, 2)
]
model = DLRM(
    EmbeddingBagCollection(device=torch.device("meta"), tables=tables),
    dense_in_features=10,
    dense_arch_layer_sizes=[16, 8],
    over_arch_layer_sizes=[8, 1],
)
model = DistributedModelParallel(model, device=torch.device("cpu"))
print("model built", file=sys.stderr, flush=True)
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
for step in range(1, args.steps + 1):
    lengths = torch.ones(8, dtype=torch.int32)
    sparse = KeyedJaggedTensor.from_lengths_sync(["f1", "f2"], torch.randint(0, 100, (8,)), lengths)
    optimizer.zero_grad()
    loss = model(torch.randn(4, 10), sparse).square().mean()
    loss.backward()
    optimizer.step()
    print(step, loss.item(), flush=True)
"""
