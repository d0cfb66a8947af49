"""DATA: waiting for the next batch."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset
from torch.utils.data.dataloader import _BaseDataLoaderIter

from aorta_collectors.numerics.engine.timeline import Timeline
from aorta_collectors.numerics.sources.data import DataSource
from tests.numerics.driving import timeline


class Numbers(Dataset[torch.Tensor]):
    """Each element takes a moment to make; `taken` is what this process has measured of that."""

    def __init__(self, length: int = 6) -> None:
        self.length = length
        self.taken: list[float] = []

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        began = time.perf_counter()
        time.sleep(0.01)
        self.taken.append(time.perf_counter() - began)
        return torch.tensor(index)


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(4))

    def __len__(self) -> int:
        return 3  # wrong, of which torch warns whoever has asked


@pytest.fixture
def observed() -> Iterator[tuple[Timeline, DataSource]]:
    before = _BaseDataLoaderIter.__dict__["__next__"], DataLoader.__dict__["__iter__"]
    spans = timeline()
    source = DataSource(spans, pytest.fail)
    source.start()
    yield spans, source
    source.stop()
    assert (_BaseDataLoaderIter.__dict__["__next__"], DataLoader.__dict__["__iter__"]) == before


def test_batches_made_by_the_program_itself(observed: tuple[Timeline, DataSource]) -> None:
    spans, source = observed
    dataset = Numbers()
    left = []
    for _ in DataLoader(dataset, batch_size=2):
        left.append(source.remaining())
    assert left == [2, 1, 0]
    found = spans.take()
    assert {(span.name, span.kind) for span in found} == {("DATA", "phase")}
    assert len(found) == 1 + 3 + 1  # the iterator, three batches, and that there are no more
    assert sum(span.own_ns for span in found) / 1e9 == pytest.approx(sum(dataset.taken), rel=0.05)


def test_batches_of_a_worker_are_waited_for_and_the_worker_is_not_observed(
    observed: tuple[Timeline, DataSource],
) -> None:
    spans, source = observed
    loader = DataLoader(Numbers(4), batch_size=2, num_workers=1, multiprocessing_context="fork")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of forking where threads run
        batches = [batch.tolist() for batch in loader]
    assert batches == [[0, 1], [2, 3]]
    assert len(spans.take()) == 1 + 2 + 1
    assert source.remaining() is None or source.remaining() == 0


def test_of_a_stream_no_length_is_asked_for(observed: tuple[Timeline, DataSource]) -> None:
    spans, source = observed
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in DataLoader(Stream(), batch_size=None):
            assert source.remaining() is None
    assert len(spans.take()) == 1 + 4 + 1


class Nested(Dataset[Any]):
    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> Any:
        return next(iter(DataLoader(Numbers(1))))


def test_a_loader_within_a_loader_counts_with_it(observed: tuple[Timeline, DataSource]) -> None:
    spans, _ = observed
    list(DataLoader(Nested(), batch_size=1))
    assert len(spans.take()) == 1 + 2 + 1


def test_what_the_dataset_raises_reaches_the_program(observed: tuple[Timeline, DataSource]) -> None:
    spans, _ = observed

    class Broken(Numbers):
        def __getitem__(self, index: int) -> torch.Tensor:
            raise KeyError("broken")

    with pytest.raises(KeyError, match="broken"):
        next(iter(DataLoader(Broken())))
    assert len(spans.take()) == 2
