"""Following a named tensor in plain training loops: at the entry of forward, and past its modules."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor, nn
from torchrec import JaggedTensor, KeyedJaggedTensor

from aorta_collectors.observe.followed.entry import FollowEntry
from aorta_collectors.observe.watch import WatchGroup
from tests.observe.followed.pipelines import (
    following,
)

LINEARS = WatchGroup(types=("Linear",))
PLAIN = FollowEntry("x", stages=False)


class Net(nn.Module):
    """Takes a batch of any form under `batch`, and a flag."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3))

    def forward(self, batch: Any, training: bool = True) -> Tensor:
        x = batch["x"] if isinstance(batch, dict) else batch.x if hasattr(batch, "x") else batch[0]
        return self.layers(x)


def test_the_batch_is_found_positionally_or_by_keyword() -> None:
    net = Net()
    with following(PLAIN, root=Net) as (follow, eye):
        net({"x": torch.ones(2, 3)})
        net(batch={"x": torch.ones(2, 3)}, training=False)
        net({"x": torch.ones(2, 3)}, True)
    assert eye.places() == [("x", "forward", 1), ("x", "forward", 2), ("x", "forward", 3)]
    assert follow.batch_id == 3


def test_a_tensor_passed_under_the_followed_name() -> None:
    class Direct(nn.Module):
        def forward(self, mask: Tensor, x: Tensor) -> Tensor:
            return x * mask

    class Wrapper(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = Direct()

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            return self.module(*args, **kwargs)

    one, other = torch.ones(1), torch.full((2,), float("nan"))
    with following(PLAIN, root=Wrapper) as (_, eye):
        Wrapper()(one, other)
        Wrapper()(one, x=other)
    assert [(read.layer, read.nans) for read in eye.reads] == [("x", 2), ("x", 2)]


def test_the_same_batch_keeps_its_number() -> None:
    net, mask = Net(), torch.ones(3)
    batches = [{"x": torch.ones(2, 3), "mask": mask} for _ in range(3)]
    with following(PLAIN, FollowEntry("mask", stages=False), root=Net) as (follow, _):
        numbers = []
        for batch in (*batches, *batches, {"x": torch.ones(2, 3), "mask": mask}):
            net(dict(batch))  # a loader may make the dict anew; its tensors tell
            numbers.append(follow.batch_id)
    assert numbers == [1, 2, 3, 1, 2, 3, 4]


def test_ids_that_are_used_again_are_no_earlier_batch() -> None:
    net, numbers = Net(), []
    with following(PLAIN, root=Net) as (follow, _):
        for _ in range(300):
            net({"x": torch.ones(2, 3)})
            numbers.append(follow.batch_id)
    assert numbers == list(range(1, 301))


def test_everything_is_read_where_no_name_is_found() -> None:
    net = Net()
    with following(FollowEntry("features", stages=False), FollowEntry("y", stages=False), root=Net) as (
        follow,
        eye,
    ):
        net({"x": torch.ones(2, 3), "more": [torch.ones(1), {"too deep": torch.ones(1)}]})
    assert [read.layer for read in eye.reads] == ["batch[x]", "batch[more][0]"]
    assert follow.auto_discovered
    assert follow.batch_id == 1


def test_a_loss_module_after_it_is_no_batch() -> None:
    net, loss = Net(), nn.MSELoss()
    with following(PLAIN, root=(Net, nn.MSELoss)) as (follow, eye):  # type: ignore[arg-type]
        for _ in range(2):
            loss(net({"x": torch.ones(2, 3)}), torch.ones(2, 3))
            assert follow.batch_id is None
    assert eye.places() == [("x", "forward", 1), ("x", "forward", 2)]
    assert not follow.auto_discovered


def test_stride_counts_from_the_start_of_each_step() -> None:
    net = Net()
    entry = FollowEntry("x", stages=False, modules=WatchGroup(types=("Linear",), stride=2))
    with following(entry, root=Net) as (_, eye):
        net({"x": torch.ones(2, 3)})
        net({"x": torch.ones(2, 3)})
    assert [(read.batch_id, read.checkpoint) for read in eye.reads] == [
        (1, ""),
        (1, "Linear"),
        (1, "Linear"),
        (2, ""),
        (2, "Linear"),
        (2, "Linear"),
    ]


def test_what_a_module_did_to_the_tensor_is_seen_after_it() -> None:
    class Spoils(nn.Module):
        def forward(self, batch: dict[str, Tensor]) -> Tensor:
            self.first(batch["x"])
            batch["x"][0] = float("nan")
            return self.second(batch["x"])

        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)

    with following(FollowEntry("x", stages=False, modules=LINEARS), root=Spoils) as (_, eye):
        Spoils()({"x": torch.ones(2, 3)})
    assert [read.nans for read in eye.reads] == [0, 0, 3]


def test_a_tensor_the_forward_frees_is_not_kept() -> None:
    freed = []

    class Frees(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)

        def forward(self, batch: dict[str, Tensor]) -> Tensor:
            ref = weakref.ref(batch["x"])
            with torch.no_grad():
                y = self.first(batch.pop("x"))
                freed.append(ref() is None)
                batch["z"].untyped_storage().resize_(0)
                return self.second(y)

    entries = [FollowEntry(name, stages=False, modules=LINEARS) for name in "xz"]
    with following(*entries, root=Frees) as (_, eye):
        Frees()({"x": torch.ones(2, 3), "z": torch.ones(4)})
    assert freed == [True]
    assert [(read.layer, read.checkpoint) for read in eye.reads] == [
        ("x", ""),
        ("z", ""),
        ("x", "Linear"),
        ("z", "Linear"),
    ]


def test_an_entry_where_nothing_could_be_read_is_no_checkpoint() -> None:
    with following(PLAIN, root=Net) as (follow, eye):
        Net().to("meta")({"x": torch.ones(2, 3, device="meta")})
    assert (eye.reads, follow.forward_checkpoints, follow.batch_id) == ([], 0, 1)


def test_at_most_so_many_tensors_of_an_entry() -> None:
    net = Net()
    with following(PLAIN, root=Net, most=5) as (_, eye):
        net.forward = lambda batch: None  # type: ignore[assignment, method-assign]
        net({"x": [torch.ones(1) for _ in range(20)]})
    assert [read.layer for read in eye.reads] == [f"x[{place}]" for place in range(5)]


def test_heavy_metadata() -> None:
    class Takes(nn.Module):
        def forward(self, kjt: Any, jt: Any) -> None:
            pass

    kjt = KeyedJaggedTensor(["a", "b"], torch.tensor([7, 3, 5]), offsets=torch.tensor([0, 2, 2, 3, 3]))
    jt = JaggedTensor(torch.tensor([1.5, float("nan")]), lengths=torch.tensor([2, 0]))
    entries = FollowEntry("kjt", stages=False), FollowEntry("jt", stages=False)
    with following(*entries, root=Takes, sparse=True, sparse_heavy=True) as (_, eye):
        Takes()(kjt, jt)
    first, second = (read.extra or {} for read in eye.reads)
    # The lengths are not there, and are not computed: that would be a change to the program.
    assert "sparse_lengths_shape" not in first
    assert "sparse_empty_bags" not in first
    assert kjt.lengths_or_none() is None
    assert (first["sparse_num_keys"], first["sparse_offsets_shape"]) == (2, [5])
    assert (first["sparse_index_min"], first["sparse_index_max"]) == (3, 7)
    assert (second["sparse_empty_bags"], second["sparse_max_bag_len"]) == (1, 2)
    assert "sparse_index_min" not in second
    assert eye.reads[1].nans == 1


def test_an_eye_that_fails_does_not_stop_the_program_or_the_other_reads() -> None:
    net = Net()
    with following(PLAIN, FollowEntry("y", stages=False), root=Net) as (_, eye):
        seen, eye.observe = eye.observe, None
        net({"x": torch.ones(2, 3), "y": torch.ones(1)})
        assert len(eye.errors) == 2
        eye.observe, eye.errors = seen, []
        net({"x": torch.ones(2, 3), "y": torch.ones(1)})
    assert eye.places() == [("x", "forward", 2), ("y", "forward", 2)]


def test_side_stream_is_asked_for_at_the_entry_alone() -> None:
    net, lines = Net(), []
    entry = FollowEntry("x", stages=False, side_stream=True, modules=LINEARS)
    with following(entry, root=Net, log=lines.append) as (follow, eye):
        net({"x": torch.ones(2, 3)})
    assert [read.side is not None for read in eye.reads] == [True, False, False, False]
    assert (follow.stage_reads_active, follow.stage_read_count) == (False, 0)
