"""Following a named tensor through the stages of torchrec's pipeline and into forward."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torchrec.distributed.train_pipeline import TrainPipelineSparseDist
from torchrec.distributed.train_pipeline.experimental_pipelines import TrainPipelineSparseDistT
from torchrec.distributed.train_pipeline.train_pipelines import EvalPipelineSparseDist, TrainPipelineSparseDistLite

from aorta_collectors.observe.followed.entry import FollowEntry
from aorta_collectors.observe.watch import WatchGroup
from tests.observe.followed.pipelines import (
    FEATURES,
    Batch,
    following,
    make_batch,
    make_batches,
    pipeline,
    progress,
    recommender_world,
)

LINEARS = WatchGroup(types=("Linear",))


@pytest.fixture(autouse=True)
def _recommender_world() -> Iterator[None]:
    with recommender_world():
        yield


def test_the_nan_of_batch_seven_is_there_from_the_copy_on() -> None:
    with following() as (follow, eye):
        progress(pipeline(), make_batches(10, bad=7))
    stages = ["copy", "sparse_start", "sparse_wait", "forward"]
    assert eye.of_batch(7) == [(stage, 1) for stage in stages]
    for number in (1, 6, 8, 10):
        assert eye.of_batch(number) == [(stage, 0) for stage in stages]
    assert len(eye.reads) == 40
    assert (follow.pipeline_checkpoints, follow.forward_checkpoints, follow.batches_seen) == (30, 10, 10)
    assert (follow.pipeline_installed, follow.mint_phase) == (True, "copy")
    assert not follow.auto_discovered


@pytest.mark.parametrize("options", [{}, {"enable_inplace_copy_batch": True}, {"kind": TrainPipelineSparseDistLite}])
def test_other_ways_through_have_the_same_stages(options: dict[str, Any]) -> None:
    with following() as (_, eye):
        progress(pipeline(**options), make_batches(5, bad=3))
    for number in range(1, 6):
        nans = int(number == 3)
        assert eye.of_batch(number) == [
            ("copy", nans),
            ("sparse_start", nans),
            ("sparse_wait", nans),
            ("forward", nans),
        ]


def test_a_pipeline_that_copies_in_a_thread_counts_at_the_next_stage() -> None:
    with following() as (follow, eye):
        evaluated = pipeline(EvalPipelineSparseDist)
        with torch.no_grad():
            progress(evaluated, make_batches(4, bad=2))
    for number in range(1, 5):
        reads = eye.of_batch(number)
        assert {phase for phase, _ in reads} == {"sparse_start", "sparse_wait", "forward"}
        assert {nans for _, nans in reads} == {int(number == 2)}
    assert follow.batches_seen == follow.forward_checkpoints == 4


def test_a_batch_whose_copy_is_not_waited_for_keeps_its_number() -> None:
    with following() as (follow, eye):
        progress(pipeline(TrainPipelineSparseDistT), make_batches(4, bad=3))
    for number in range(1, 5):
        nans = int(number == 3)
        assert eye.of_batch(number) == [("sparse_start", nans), ("sparse_wait", nans), ("forward", nans)]
    assert (follow.batches_seen, follow.pipeline_checkpoints) == (4, 8)


def test_batches_that_were_under_way_before_have_no_number() -> None:
    trained, stream = pipeline(), make_batches(6)
    trained.progress(stream)
    with following() as (follow, eye):
        progress(trained, stream)
    early = [(read.phase, read.batch_id) for read in eye.reads[:5]]
    # Batches 2 and 3 are in the pipeline; the fourth is the first to be seen from its copy on.
    assert early == [
        ("sparse_start", None),
        ("copy", 1),
        ("forward", None),
        ("sparse_wait", None),
        ("sparse_start", 1),
    ]
    assert follow.batches_seen == 3


def test_a_batch_that_turns_bad_between_stages() -> None:
    class Corrupting(TrainPipelineSparseDist):
        def start_sparse_data_dist(self, batch: Any, context: Any) -> None:
            super().start_sparse_data_dist(batch, context)
            if batch is not None and context.index == 2:
                batch.embedding_features[0, 0] = float("inf")
                batch.embedding_features[0, 0] -= float("inf")

    with following() as (_, eye):
        progress(pipeline(Corrupting), make_batches(5))
    assert eye.of_batch(3) == [("copy", 0), ("sparse_start", 1), ("sparse_wait", 1), ("forward", 1)]
    assert eye.of_batch(2) == [("copy", 0), ("sparse_start", 0), ("sparse_wait", 0), ("forward", 0)]


def test_the_program_computes_the_same_bit_for_bit() -> None:
    def run() -> tuple[list[Tensor], Tensor]:
        trained = pipeline()
        outputs = progress(trained, make_batches(6))
        return [*outputs, *trained._model.state_dict().values()], torch.get_rng_state()

    bare, bare_random = run()
    with following(FEATURES, FollowEntry("kjt", modules=LINEARS), sparse=True):
        watched, random = run()
    assert all(torch.equal(one, other) for one, other in zip(bare, watched, strict=True))
    assert torch.equal(bare_random, random)


def test_batches_are_freed_as_without_it() -> None:
    def alive() -> list[tuple[int, int]]:
        """How many (batches, tensors) live whenever the pipeline asks for a batch, and at the end."""
        given: list[weakref.ref[Batch]] = []
        tensors: list[weakref.ref[Tensor]] = []
        counts = []

        def count() -> None:
            counts.append(tuple(sum(ref() is not None for ref in refs) for refs in (given, tensors)))

        def counted_batches() -> Iterator[Batch]:
            for batch in make_batches(8):
                given.append(weakref.ref(batch))
                tensors.append(weakref.ref(batch.embedding_features))
                count()
                yield batch
                del batch

        progress(pipeline(), counted_batches())
        count()
        return counts  # type: ignore[return-value]

    # A reference cycle of ours would keep a batch until the next collection.
    gc.disable()
    try:
        bare = alive()
        with following(FollowEntry("embedding_features", modules=LINEARS), FollowEntry("kjt")) as (follow, _):
            assert alive() == bare
            numbers = follow._numbers
            assert len(numbers._tensors) == len(numbers._batches) == 0
            assert len(numbers._contexts) <= 1  # the model itself holds on to its last context
    finally:
        gc.enable()


def test_the_batch_is_not_written_on() -> None:
    batch = make_batch()
    before = dict(vars(batch)), batch.kjt.offsets_or_none(), set(vars(batch.kjt))
    with following(FollowEntry("kjt"), sparse=True, sparse_heavy=True):
        pipeline().progress(iter([batch, make_batch(), make_batch()]))
    assert (dict(vars(batch)), batch.kjt.offsets_or_none(), set(vars(batch.kjt))) == before


def test_each_entry_has_its_own_modules_and_stages() -> None:
    entries = (
        FollowEntry("embedding_features", stages=True, bounds=(0, 1)),
        FollowEntry("label", stages=False, modules=WatchGroup(types=("Linear",), stride=2)),
    )
    with following(*entries) as (_, eye):
        progress(pipeline(), make_batches(3))
    of_two = [(read.layer, read.phase, read.checkpoint) for read in eye.reads if read.batch_id == 2]
    assert of_two == [
        ("embedding_features", "copy", ""),
        ("embedding_features", "sparse_start", ""),
        ("embedding_features", "sparse_wait", ""),
        ("embedding_features", "forward", ""),
        ("label", "forward", ""),
        ("label", "forward", "Linear"),  # of three Linear layers the first and the third
        ("label", "forward", "Linear"),
    ]
    assert {read.layer: read.site.bounds for read in eye.reads} == {"embedding_features": (0, 1), "label": None}


def test_without_stages_nothing_is_wrapped() -> None:
    methods = dict(vars(TrainPipelineSparseDist))
    with following(FollowEntry("embedding_features", stages=False, modules=LINEARS)) as (follow, eye):
        assert dict(vars(TrainPipelineSparseDist)) == methods
        progress(pipeline(), make_batches(3, bad=2))
    assert {read.phase for read in eye.reads} == {"forward"}
    assert eye.of_batch(2) == [("forward", 1)] * 4  # the entry, and three Linear layers
    assert (follow.pipeline_installed, follow.mint_phase, follow.pipeline_checkpoints) == (False, None, 0)
    assert follow.batches_seen == follow.forward_checkpoints == 3


def test_a_post_processed_batch_keeps_its_number() -> None:
    class Rebuilt(TrainPipelineSparseDist):
        def _backward(self, losses: Tensor) -> None:
            super()._backward(losses)

    def rebuild(batch: Any) -> Any:
        return trained._model(Batch(batch.embedding_features, batch.kjt, batch.label.clone()))

    with following() as (_, eye):
        trained = pipeline(Rebuilt, custom_model_fwd=rebuild)
        progress(trained, make_batches(4))
    assert [read.batch_id for read in eye.reads if read.phase == "forward"] == [1, 2, 3, 4]


def test_a_batch_that_lost_all_identity_has_no_number() -> None:
    def rebuild(batch: Any) -> Any:
        return trained._model(Batch(batch.embedding_features.clone(), batch.kjt, batch.label))

    with following() as (follow, eye):
        trained = pipeline(custom_model_fwd=rebuild)
        progress(trained, make_batches(3))
    assert [read.batch_id for read in eye.reads if read.phase == "forward"] == [None] * 3
    assert follow.batches_seen == 3


def test_a_jagged_tensor_and_its_layout() -> None:
    with following(FollowEntry("kjt"), sparse=True) as (_, eye):
        progress(pipeline(), make_batches(2))
    copy = eye.reads[0]
    assert (copy.layer, copy.role) == ("kjt", "sparse")
    assert copy.extra == {
        "sparse": True,
        "sparse_num_keys": 1,
        "sparse_lengths_shape": [2],
        "sparse_lengths_dtype": "torch.int64",
        "sparse_offsets_shape": [3],
        "sparse_offsets_dtype": "torch.int64",
        "sparse_values_shape": [4],
        "sparse_values_dtype": "torch.int64",
        "sparse_num_bags": 2,
        "sparse_values_device": "cpu",
    }
