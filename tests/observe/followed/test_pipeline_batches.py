"""Which batch a stage was about: by its context, in the queue, or as earlier versions of torchrec hand it over."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from torchrec.distributed.train_pipeline import TrainPipelineSparseDist
from torchrec.distributed.train_pipeline.pipeline_context import TrainPipelineContext

from tests.observe.followed.pipelines import Batch, make_batches, pipeline, progress, recommender_world, stages


@pytest.fixture(autouse=True)
def _recommender_world() -> Iterator[None]:
    with recommender_world():
        yield


def test_a_batch_that_was_replaced_in_the_queue_is_read_as_it_is_now() -> None:
    class Replaces(TrainPipelineSparseDist):
        def wait_sparse_data_dist(self, context: Any) -> None:
            super().wait_sparse_data_dist(context)
            place = list(self.contexts).index(context)
            self.batches[place] = Batch(**vars(self.batches[place]))
            replaced.append(self.batches[place])

    replaced: list[Any] = []
    with stages() as passed:
        progress(pipeline(Replaces), make_batches(3))
    waited = [batch for phase, batch in passed.stages if phase == "sparse_wait"]
    assert list(map(id, waited)) == list(map(id, replaced))
    assert len(waited) == 3


class Old(TrainPipelineSparseDist):
    """The stages as they were called before torchrec 1.0."""

    def copy_batch_to_gpu(self, dataloader_iter: Any) -> Any:
        return next(dataloader_iter)

    def start_sparse_data_dist(self, batch: Any) -> None:
        pass

    def wait_sparse_data_dist(self, *given: Any) -> None:
        pass


def old_pipeline() -> Any:
    old = pipeline(Old)
    del old.contexts, old.batches
    return old


@pytest.mark.parametrize("given", ["batch", "context", "nothing", "deprecated"])
def test_what_the_wait_is_called_with_leads_to_the_batch(given: str) -> None:
    batch, other = {"x": object}, {"y": object}
    with stages() as passed:
        old = old_pipeline()
        old._batch_ip1 = other
        assert old.copy_batch_to_gpu(iter([batch])) is batch
        old.start_sparse_data_dist(batch)
        if given == "batch":
            old.wait_sparse_data_dist(other)
        elif given == "context":
            old.wait_sparse_data_dist(old._context)
        elif given == "nothing":
            old.wait_sparse_data_dist()
        else:
            old._wait_sparse_data_dist()
    assert passed.errors == []
    waited = other if given == "batch" else batch
    assert passed.stages == [("copy", batch), ("sparse_start", batch), ("sparse_wait", waited)]
    assert passed.contexts == [None, None, None]  # the one context of old serves all batches


@pytest.mark.parametrize("place", ["_batch_ip1", "_batch_i"])
def test_a_batch_under_way_before_the_start_is_found_in_an_old_pipeline(place: str) -> None:
    old = old_pipeline()
    setattr(old, place, {"x": 1})
    with stages() as passed:
        old.wait_sparse_data_dist()
    assert passed.stages == [("sparse_wait", {"x": 1})]


def test_a_batch_that_is_a_pair_is_no_batch_with_a_context() -> None:
    pair = (object(), object())
    with stages() as passed:
        old_pipeline().copy_batch_to_gpu(iter([pair]))
    assert passed.stages == [("copy", pair)]


def test_a_context_without_queue_leads_to_its_own_batch() -> None:
    class Queueless(TrainPipelineSparseDist):
        def start_sparse_data_dist(self, batch: Any, context: Any) -> None:
            pass

        def wait_sparse_data_dist(self, context: Any) -> None:
            pass

    with stages() as passed:
        built = pipeline(Queueless)
        contexts = [TrainPipelineContext(index=index) for index in range(2)]
        batches = list(make_batches(2))
        for batch, context in zip(batches, contexts, strict=True):
            built.start_sparse_data_dist(batch, context=context)
        for context in reversed(contexts):
            built.wait_sparse_data_dist(context)
        waited = [id(batch) for phase, batch in passed.stages if phase == "sparse_wait"]
        assert waited == [id(batches[1]), id(batches[0])]
        del batches[0], batch
        passed.stages.clear()
        built.wait_sparse_data_dist(contexts[0])  # its batch is gone: it was not kept alive for this
        assert passed.stages == []
    assert passed.errors == []
