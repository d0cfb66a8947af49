"""A torchrec DLRM behind DistributedModelParallel whose activations grow until they overflow.

Runs on a CPU, alone or under `torchrun --nproc_per_node=2`. With the default learning rate the loss grows by about a
power of ten a step, until float32 has no room for it; CLIP_GRADIENTS=1 tames it. Exits with 1 once the loss is not
finite, as a training script that checks its loss would.
"""

import logging
import math
import os
import socket
import sys
import warnings

import torch
import torch.distributed as dist
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor
from torchrec.distributed.model_parallel import DistributedModelParallel
from torchrec.models.dlrm import DLRM

BATCH, DENSE_FEATURES, ROWS, DIM = 4, 10, 100, 8


def join_process_group() -> None:
    """torchrun sets the environment; alone, this is a group of one on a free port."""
    if "RANK" not in os.environ:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo")


def build_model() -> DistributedModelParallel:
    tables = [
        EmbeddingBagConfig(name=f"table_{i}", embedding_dim=DIM, num_embeddings=ROWS, feature_names=[f"feature_{i}"])
        for i in (1, 2)
    ]
    dlrm = DLRM(
        EmbeddingBagCollection(device=torch.device("meta"), tables=tables),
        dense_in_features=DENSE_FEATURES,
        dense_arch_layer_sizes=[16, DIM],
        over_arch_layer_sizes=[8, 1],
    )
    return DistributedModelParallel(dlrm, device=torch.device("cpu"))


def main() -> int:
    join_process_group()
    torch.manual_seed(0)
    model = build_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=float(os.environ.get("LR", "2")))
    clip = os.environ.get("CLIP_GRADIENTS") == "1"
    for step in range(1, int(os.environ.get("STEPS", "60")) + 1):
        sparse = KeyedJaggedTensor.from_lengths_sync(
            ["feature_1", "feature_2"],
            torch.randint(0, ROWS, (2 * BATCH,)),
            torch.ones(2 * BATCH, dtype=torch.int32),
        )
        loss = model(torch.randn(BATCH, DENSE_FEATURES), sparse).square().mean()
        optimizer.zero_grad()
        loss.backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        print(f"step {step} loss {loss.item():.4g}", flush=True)
        if not math.isfinite(loss.item()):
            print(f"stopping: the loss is {loss.item()} in step {step}", flush=True)
            return 1
    return 0


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    sys.exit(main())
