"""What a step works on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torchrec.sparse.jagged_tensor import JaggedTensor, KeyedJaggedTensor

from aorta_collectors.numerics.metrics.throughput import Batch, batch_of


@dataclass
class Inputs:
    scale: float
    pixels: torch.Tensor


IDS = torch.zeros(4, 16, dtype=torch.int64)
KEYED = KeyedJaggedTensor.from_lengths_sync(
    keys=["a", "b"], values=torch.arange(6), lengths=torch.tensor([2, 0, 1, 1, 1, 1])
)


@pytest.mark.parametrize(
    ("args", "kwargs", "batch"),
    [
        ((torch.ones(8, 3),), None, Batch(8, None)),
        ((IDS,), {}, Batch(4, 64)),
        ((), {"attention_mask": torch.ones(4, 16, dtype=torch.bool), "input_ids": IDS}, Batch(4, 64)),
        ((torch.tensor(2.0), {"dense": [torch.ones(5, 2)], "ids": IDS}), None, Batch(5, 64)),
        ((Inputs(0.5, torch.ones(7, 3, 2)),), None, Batch(7, None)),
        ((KEYED,), None, Batch(3, None)),
        ((torch.ones(3, 13), KEYED), None, Batch(3, None)),
        ((JaggedTensor(torch.arange(3), lengths=torch.tensor([1, 2])),), None, Batch(2, None)),
        ((), {}, Batch(None, None)),
        (("text", 3, None), {"use_cache": True}, Batch(None, None)),
        ((torch.zeros(0, 16, dtype=torch.int32),), None, Batch(0, 0)),
    ],
)
def test_samples_and_tokens(args: tuple[Any, ...], kwargs: dict[str, Any] | None, batch: Batch) -> None:
    assert batch_of(args, kwargs) == batch


def test_looking_ends_in_a_value_that_holds_itself() -> None:
    endless: list[Any] = ["text"] * 500
    endless.insert(0, endless)
    assert batch_of((endless,), None) == Batch(None, None)
