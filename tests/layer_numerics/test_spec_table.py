"""The specs that the specification offers for copying: each runs as it stands, and does what its row says."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.corpus.runs import Forks
from tests.support import records, summary

#: A pipelined recommender with the classes and names that the specs speak of.
PROGRAM = """
import logging, warnings
warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)
from dataclasses import dataclass
import torch
import torch.distributed as dist
from torch import nn
from torchrec.distributed.model_parallel import DistributedModelParallel
from torchrec.distributed.train_pipeline import TrainPipelineSparseDist
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor
from torchrec.streamable import Pipelineable
torch.set_num_threads(1)
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
torch.manual_seed(0)

@dataclass
class Batch(Pipelineable):
    embedding_features: torch.Tensor
    sparse: KeyedJaggedTensor
    def to(self, device, non_blocking=False):
        return Batch(self.embedding_features.to(device), self.sparse.to(device))
    def record_stream(self, stream):
        pass
    def pin_memory(self):
        return self

class AttentionBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.eye(8))
        self.shift = nn.Parameter(torch.zeros(8))
        self.projection = nn.Linear(8, 8)
    def forward(self, x):
        return self.projection(torch.softmax(x @ self.scale + self.shift, 1))

class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.eye(8))
        self.layers = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
    def forward(self, x):
        return self.layers(x @ self.weight)

class Projections(nn.Module):
    def __init__(self):
        super().__init__()
        self.projections = nn.ModuleList([nn.Linear(8, 8) for _ in range(20)])
    def forward(self, x):
        return sum(projection(x) for projection in self.projections)

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        table = EmbeddingBagConfig(name="t", embedding_dim=8, num_embeddings=10, feature_names=["f"])
        self.embeddings = EmbeddingBagCollection(device=torch.device("meta"), tables=[table])
        self.emb_proj = Projections()
        self.attention = AttentionBlock()
        self.mlp = MLP()
    def forward(self, batch):
        x = self.emb_proj(batch.embedding_features) + self.embeddings(batch.sparse).values()
        prediction = self.mlp(self.attention(x))
        return prediction.square().mean(), prediction

def batches():
    for index in range(4):
        features = torch.rand(4, 8) * 60
        if index == 2:
            features[1, 1] = 61.0
        indices, lengths = torch.randint(0, 10, (4,)), torch.ones(4, dtype=torch.int32)
        yield Batch(features, KeyedJaggedTensor.from_lengths_sync(["f"], indices, lengths))

model = DistributedModelParallel(Model(), device=torch.device("cpu"))
pipeline = TrainPipelineSparseDist(model, torch.optim.SGD(model.parameters(), lr=1e-6), device=torch.device("cpu"))
stream = batches()
while True:
    try:
        print(pipeline.progress(stream).mean().item())
    except StopIteration:
        break
"""
PREFIX = "_dmp_wrapped_module.module."
STAGES = {"copy", "sparse_start", "sparse_wait", "forward"}


class Found:
    """What a run left."""

    def __init__(self, directory: Path) -> None:
        self.summary = summary(directory)
        self.records = records(directory / "layers_rank0.jsonl")

    def of(self, **fields: Any) -> list[dict[str, Any]]:
        return [record for record in self.records if all(record.get(key) == value for key, value in fields.items())]

    def values(self, field: str) -> set[Any]:
        return {record.get(field) for record in self.records}


def by_block(found: Found) -> None:
    assert found.values("module_path") == {"attention", "mlp"}
    assert found.values("role") == {"act", "input", "igrad", "weight", "bias", "wgrad", "bgrad"}


def one_scope(found: Found) -> None:
    assert all("emb_proj" in name for name in found.values("layer_name"))
    assert found.values("role") == {"input", "act"}


def input_gradients_only(found: Found) -> None:
    assert found.values("role") == {"igrad"}
    assert found.summary["grad_params_planned"] == found.summary["params_scanned"] == 0


def every_fourth(found: Found) -> None:
    assert found.summary["watched_count"] == -(-23 // 4)
    assert found.values("role") == {"act"}


def with_detail(found: Found) -> None:
    assert found.values("module_path") == {"mlp"}
    for record in found.records:
        assert int(record["storage_ptr"], 16) <= int(record["data_ptr"], 16)
        assert record["storage_nbytes"] > 0
    assert found.summary["capture_addr"]
    assert found.summary["bad_values"]


def at_the_stages(found: Found) -> None:
    assert found.summary["follow_mode"] == "stage_wrappers"
    assert found.values("layer_name") == {"embedding_features"}
    for batch in (1, 2, 3, 4):
        assert {record["phase"] for record in found.of(batch_id=batch)} == STAGES
    assert "checkpoint" not in found.records[0]


def every_eighth_layer(found: Found) -> None:
    assert {record["phase"] for record in found.records} == STAGES
    # 21 calls in scope a step: the twenty projections, then emb_proj itself.
    expected = [f"{PREFIX}emb_proj.projections.{number}" for number in (0, 8, 16)]
    for batch in (1, 2, 3, 4):
        assert [record["checkpoint"] for record in found.of(batch_id=batch) if "checkpoint" in record] == expected


def named_layers_only(found: Found) -> None:
    checkpoints = [record["checkpoint"] for record in found.of(batch_id=3) if "checkpoint" in record]
    # A name is a substring of the path.
    assert checkpoints == [f"{PREFIX}emb_proj.projections.0"]


def without_the_wrappers(found: Found) -> None:
    assert found.summary["follow_mode"] == "forward_blocks"
    assert found.summary["pipeline_installed"] is False
    assert found.summary["pipeline_checkpoints"] == 0
    assert found.summary["forward_checkpoints"] == 4
    assert found.values("phase") == {"forward"}
    assert found.summary["first_oob"] == {
        "step": 3,
        "layer": "embedding_features",
        "direction": "pipeline",
        "phase": "forward",
        "oob_count": 1,
        "batch_id": 3,
        "checkpoint": None,
        "seq": 0,
    }
    assert len(found.of(batch_id=3, oob_count=1)) == 22
    assert found.summary["oob_records"] == 22


ROWS: dict[str, tuple[str, Callable[[Found], None]]] = {
    "standard tensors by block": (
        '{"watch":[{"scope":{"types":["AttentionBlock","MLP"]},"tensors":["input","output","weight","bias","grad"]}]}',
        by_block,
    ),
    "selected tensors from one scope": (
        '{"watch":[{"scope":{"names":["emb_proj"]},"tensors":["input","output"]}]}',
        one_scope,
    ),
    "activation-input grad only": (
        '{"watch":[{"scope":{"types":["Linear"]},"tensors":["igrad"]}]}',
        input_gradients_only,
    ),
    "every 4th Linear": (
        '{"watch":[{"scope":{"types":["Linear"]},"tensors":["output"],"stride":4}]}',
        every_fourth,
    ),
    "extra per-record detail": (
        '{"watch":[{"scope":{"types":["MLP"]},"tensors":["output"]}],"diagnostics":["addr","bad_values"]}',
        with_detail,
    ),
    "follow through the pipeline": ('{"follow":[{"tensor":"embedding_features","stages":true}]}', at_the_stages),
    "follow every N layers": (
        '{"follow":[{"tensor":"embedding_features","scope":{"names":["emb_proj"]},"stride":8}]}',
        every_eighth_layer,
    ),
    "follow at named layers only": (
        '{"follow":[{"tensor":"embedding_features","scope":{"names":["emb_proj.projections.0"]}}]}',
        named_layers_only,
    ),
    "follow without the stage wrappers": (
        '{"follow":[{"tensor":"embedding_features","pipeline":false,"scope":{"names":["emb_proj"]},"bounds":[0,60]}]}',
        without_the_wrappers,
    ),
}


def _run(forks: Forks, directory: Path, spec: str, **env: str) -> Found:
    (directory / "train.py").write_text(PROGRAM)
    argv = ["-m", "aorta_collectors.layer_numerics", "train.py"]
    forks.run(argv, directory, {"NANLOG_DIR": "out", "NANLOG_SPEC": spec, **env}).ok()
    return Found(directory / "out")


@pytest.mark.parametrize("row", ROWS)
def test_a_spec_of_the_table_runs_as_it_stands_and_does_what_its_row_says(
    row: str, torchrec_forks: Forks, tmp_path: Path
) -> None:
    spec, check = ROWS[row]
    # The table's specs leave sampling at one step in 50.
    found = _run(torchrec_forks, tmp_path, json.dumps({**json.loads(spec), "sample_every": 1}))
    assert found.summary["spec_applied"]
    assert found.summary["hook_errors"] == 0
    check(found)


def test_a_flat_variable_beside_a_spec_stays_in_force_where_the_spec_has_no_word_for_it(
    torchrec_forks: Forks, tmp_path: Path
) -> None:
    spec = '{"follow":[{"tensor":"sparse","stages":true}],"sample_every":1}'
    found = _run(torchrec_forks, tmp_path, spec, NANLOG_SPARSE="1", NANLOG_SPARSE_HEAVY="1")
    assert found.values("role") == {"sparse"}
    for record in found.records:
        assert record["sparse_num_keys"] == 1
        assert record["sparse_values_shape"] == [4]
        assert 0 <= record["sparse_index_min"] <= record["sparse_index_max"] < 10
