"""The wrappers around a pipeline's stages: each batch once at each stage, on every subclass, no trace afterwards."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from torchrec.distributed.train_pipeline import TrainPipelineSparseDist
from torchrec.distributed.train_pipeline.experimental_pipelines import TrainPipelineSparseDistT
from torchrec.distributed.train_pipeline.train_pipelines import TrainPipelineSemiSync

from aorta_collectors.observe.followed.pipeline import StageWatch
from tests.observe.followed.pipelines import make_batches, pipeline, progress, recommender_world, stages
from tests.support import PYTHON, run

STAGES = ("copy_batch_to_gpu", "inplace_copy_batch_to_gpu", "start_sparse_data_dist", "wait_sparse_data_dist")


@pytest.fixture(autouse=True)
def _recommender_world() -> Iterator[None]:
    with recommender_world():
        yield


def test_a_batch_passes_each_stage_once_with_one_context() -> None:
    with stages() as passed:
        progress(pipeline(), make_batches(3))
    assert passed.errors == []
    by_batch: dict[int, list[str]] = {}
    contexts: dict[int, set[int]] = {}
    for (phase, batch), context in zip(passed.stages, passed.contexts, strict=True):
        by_batch.setdefault(id(batch), []).append(phase)
        contexts.setdefault(id(batch), set()).add(id(context))
    assert list(by_batch.values()) == [["copy", "sparse_start", "sparse_wait"]] * 3
    assert len(set.union(*contexts.values())) == 3
    assert (passed.watch.installed, passed.watch.first_phase) == (True, "copy")


def test_overrides_that_call_what_they_override_are_one_passage() -> None:
    class Early(TrainPipelineSparseDist):
        def copy_batch_to_gpu(self, dataloader_iter: Any) -> Any:
            return super().copy_batch_to_gpu(dataloader_iter)

    with stages() as passed:

        class Late(Early):
            def copy_batch_to_gpu(self, dataloader_iter: Any) -> Any:
                return super().copy_batch_to_gpu(dataloader_iter)

            def wait_sparse_data_dist(self, context: Any) -> None:
                super().wait_sparse_data_dist(context)

        progress(pipeline(Late), make_batches(3))
        late = dict(vars(Late))
    assert sorted(passed.phases) == ["copy"] * 3 + ["sparse_start"] * 3 + ["sparse_wait"] * 3
    assert all(late[name] is not vars(Late)[name] for name in ("copy_batch_to_gpu", "wait_sparse_data_dist"))


def test_an_override_that_replaces_a_stage_is_seen() -> None:
    with stages() as passed:

        class Own(TrainPipelineSparseDist):
            def wait_sparse_data_dist(self, context: Any) -> None:
                for names, awaitable in context.fused_splits_awaitables:
                    context.input_dist_tensors_requests.update(zip(names, awaitable.wait(), strict=True))
                context.input_dist_splits_requests.clear()
                context.fused_splits_awaitables.clear()

        progress(pipeline(Own), make_batches(3))
    assert passed.phases.count("sparse_wait") == 3


def test_everything_is_as_it_was_after_stop() -> None:
    kinds = (TrainPipelineSparseDist, TrainPipelineSemiSync, TrainPipelineSparseDistT)
    before = [dict(vars(kind)) for kind in kinds]
    with stages():
        for name in STAGES:
            method = vars(TrainPipelineSparseDist)[name]
            original = before[0][name]
            assert method is not original
            assert (method.__name__, method.__doc__) == (original.__name__, original.__doc__)
            assert inspect.signature(method) == inspect.signature(original)
        assert vars(TrainPipelineSemiSync)["start_sparse_data_dist"] is not before[1]["start_sparse_data_dist"]
    assert [dict(vars(kind)) for kind in kinds] == before


def test_a_wrapper_that_came_later_stays_and_ours_falls_silent() -> None:
    original = TrainPipelineSparseDist.copy_batch_to_gpu
    calls = []
    try:
        with stages() as passed:
            inner = TrainPipelineSparseDist.copy_batch_to_gpu

            def theirs(self: Any, dataloader_iter: Any) -> Any:
                calls.append(self)
                return inner(self, dataloader_iter)

            TrainPipelineSparseDist.copy_batch_to_gpu = theirs
            progress(pipeline(), make_batches(2))
            assert passed.phases.count("copy") == 2
            seen = len(passed.stages)
        assert TrainPipelineSparseDist.copy_batch_to_gpu is theirs
        calls.clear()
        progress(pipeline(), make_batches(2))
        assert calls
        assert len(passed.stages) == seen
    finally:
        TrainPipelineSparseDist.copy_batch_to_gpu = original


def test_what_a_stage_raises_passes_and_reports_nothing() -> None:
    class Fails(TrainPipelineSparseDist):
        def start_sparse_data_dist(self, batch: Any, context: Any) -> None:
            raise KeyError("theirs")

    with stages() as passed:
        failing = pipeline(Fails)
        with pytest.raises(KeyError, match="theirs"):
            failing.progress(make_batches(3))
        with pytest.raises(StopIteration):
            pipeline().progress(iter([]))
        assert passed.phases == ["copy"]
        # The next passage is no nested one.
        failing.copy_batch_to_gpu(make_batches(1))
        assert passed.phases == ["copy", "copy"]


def test_an_error_of_ours_is_counted_and_the_result_stays() -> None:
    errors: list[Exception] = []

    def reached(*_args: Any) -> None:
        raise RuntimeError("ours")

    watch = StageWatch(reached, errors.append, lambda line: None)
    watch.start()
    try:
        assert len(progress(pipeline(), make_batches(2))) == 2
    finally:
        watch.stop()
    assert {str(error) for error in errors} == {"ours"}


def test_a_batch_that_is_still_being_copied_is_never_waited_for() -> None:
    with stages() as passed:
        progress(pipeline(TrainPipelineSparseDistT), make_batches(3))
    contexts: dict[str, list[int]] = {}
    for (phase, batch), context in zip(passed.stages, passed.contexts, strict=True):
        assert isinstance(batch, Future) == (phase == "copy")
        contexts.setdefault(phase, []).append(id(context))
    assert contexts["copy"] == contexts["sparse_start"] == contexts["sparse_wait"]
    assert len(set(contexts["copy"])) == 3


def test_a_pipeline_of_another_make_is_said_and_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    class Renamed:
        pass

    monkeypatch.setattr("torchrec.distributed.train_pipeline.train_pipelines.TrainPipelineSparseDist", Renamed)
    with stages() as passed:
        assert (passed.watch.installed, passed.watch.first_phase) == (False, None)
    assert (len(passed.lines), passed.errors) == (1, [])


WAITS_FOR_TORCHREC = """
import sys
from aorta_collectors.observe.followed.pipeline import StageWatch
watch = StageWatch(print, print, print)
watch.start()
assert not watch.installed and not any(name.startswith("torchrec") for name in sys.modules)
import warnings; warnings.simplefilter("ignore")
from torchrec.distributed.train_pipeline import TrainPipelineSparseDist
assert watch.installed and hasattr(TrainPipelineSparseDist.copy_batch_to_gpu, "__wrapped__")
watch.stop()
assert not hasattr(TrainPipelineSparseDist.copy_batch_to_gpu, "__wrapped__")
"""


def test_torchrec_is_waited_for_and_never_imported(tmp_path: Path) -> None:
    run([PYTHON, "-c", WAITS_FOR_TORCHREC], tmp_path).ok()
