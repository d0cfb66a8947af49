"""torchrec's TrainPipelineSparseDist, and something that writes into a batch's features behind the program's back.

Stands in for a kernel with a wrong offset: one element of `embedding_features` of the seventh batch becomes VALUE
(1e6), where all are between 0 and 60. CORRUPT says when: `copy` (as the batch reaches the device), `wait` (while its
sparse features are distributed), `forward` (while the model runs, between two of its projections), `none`. Runs on a
CPU, alone or under `torchrun --nproc_per_node=2`.
"""

import logging
import os
import socket
import warnings
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor
from torchrec.distributed.model_parallel import DistributedModelParallel
from torchrec.distributed.train_pipeline import TrainPipelineSparseDist
from torchrec.streamable import Pipelineable

BATCH, FEATURES, ROWS, DIM = 4, 16, 100, 8
BAD_BATCH = 7
CORRUPT = os.environ.get("CORRUPT", "copy")


def wild_write(batch: "Batch") -> None:
    batch.embedding_features.data[2, 3] = float(os.environ.get("VALUE", "1e6"))


@dataclass
class Batch(Pipelineable):
    number: int
    embedding_features: torch.Tensor
    sparse: KeyedJaggedTensor
    label: torch.Tensor

    def to(self, device: torch.device, non_blocking: bool = False) -> "Batch":
        moved = Batch(self.number, self.embedding_features.to(device), self.sparse.to(device), self.label.to(device))
        if CORRUPT == "copy" and self.number == BAD_BATCH:
            wild_write(moved)
        return moved

    def record_stream(self, stream: Any) -> None:
        self.embedding_features.record_stream(stream)
        self.sparse.record_stream(stream)

    def pin_memory(self) -> "Batch":
        return self


class Pipeline(TrainPipelineSparseDist):
    def wait_sparse_data_dist(self, context: Any) -> None:
        super().wait_sparse_data_dist(context)
        for batch, its_context in zip(self.batches, self.contexts, strict=False):
            if CORRUPT == "wait" and its_context is context and batch.number == BAD_BATCH:
                wild_write(batch)


class Projections(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.projections = torch.nn.ModuleList([torch.nn.Linear(FEATURES, DIM) for _ in range(3)])

    def forward(self, batch: Batch) -> torch.Tensor:
        total = torch.zeros(BATCH, DIM)
        for index, projection in enumerate(self.projections):
            total = total + projection(batch.embedding_features)
            if CORRUPT == "forward" and index == 1 and batch.number == BAD_BATCH:
                wild_write(batch)
        return total


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        table = EmbeddingBagConfig(name="table", embedding_dim=DIM, num_embeddings=ROWS, feature_names=["feature"])
        self.embeddings = EmbeddingBagCollection(device=torch.device("meta"), tables=[table])
        self.emb_proj = Projections()
        self.over = torch.nn.Linear(2 * DIM, 1)

    def forward(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        sparse = self.embeddings(batch.sparse).values()
        prediction = self.over(torch.cat([sparse, self.emb_proj(batch)], dim=1)).squeeze(1)
        return torch.nn.functional.mse_loss(prediction, batch.label), prediction


def batches(count: int) -> Any:
    for number in range(1, count + 1):
        sparse = KeyedJaggedTensor.from_lengths_sync(
            ["feature"], torch.randint(0, ROWS, (2 * BATCH,)), torch.full((BATCH,), 2)
        )
        yield Batch(number, torch.rand(BATCH, FEATURES) * 60, sparse, torch.rand(BATCH))


def main() -> None:
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    if "RANK" not in os.environ:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    device = torch.device("cpu")
    model = DistributedModelParallel(Model(), device=device)
    pipeline = Pipeline(model, torch.optim.SGD(model.parameters(), lr=1e-4), device=device)
    stream = batches(10)
    while True:
        try:
            print(f"{pipeline.progress(stream).mean().item():.6g}", flush=True)
        except StopIteration:
            break
    # While the group lives: else torch joins gloo's threads as it frees the model, holding the GIL they may wait for.
    del pipeline, model
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
