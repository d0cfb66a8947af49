"""What is kept of the first bad value: the tensor as it was then, once; and that nothing of it can stop a program."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from aorta_collectors.layer_numerics.diagnostics import AllocatorTrace, TensorDump
from aorta_collectors.observe.observation import Moment, Observation, Site
from aorta_collectors.observe.watch import WatchGroup
from tests.layer_numerics.armed import armed

NAN, INF = float("nan"), float("inf")
GOOD = torch.linspace(-1.0, 1.0, 12).reshape(3, 4)
DUMP = frozenset({"dump_tensor"})
ACTS = WatchGroup(names=("",), channels=("act",))


class Broken(nn.Module):
    """Gives out NaN from its second call on; what is called after it edits that in place."""

    def __init__(self, bad: float = NAN) -> None:
        super().__init__()
        self.bad = bad
        self.calls = 0
        self.made: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        x = x.clone()
        if self.calls > 1:
            x[1, 2] = self.bad
        self.made.append(x.detach().clone())
        return x


class Overwrite(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.mul_(0.0).nan_to_num_().add_(7.0)


def model(bad: float = NAN) -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 4), Broken(bad), Overwrite())


def dumped(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.pt"))


def read(path: Path) -> Tensor:
    """As a user does who trusts no file."""
    tensor: Tensor = torch.load(path, weights_only=True)
    return tensor


class TestDumpedTensor:
    def test_it_is_the_one_that_was_bad_before_anything_was_made_of_it(self, tmp_path: Path) -> None:
        net = model()
        broken = net[1]
        assert isinstance(broken, Broken)
        with torch.no_grad(), armed(tmp_path, ACTS, diagnostics=DUMP) as left:
            for _ in range(3):
                net(GOOD)
        (path,) = dumped(tmp_path)
        assert path.name == "bad_tensor_step2_1_act_rank0.pt"
        torch.testing.assert_close(read(path), broken.made[1], rtol=0, atol=0, equal_nan=True)
        assert left.summary["dump_tensor_dumped"] is True
        assert left.summary["first_bad"]["layer"] == "1"
        assert left.summary["first_bad"]["step"] == 2

    def test_there_is_one_file_whatever_comes_after(self, tmp_path: Path) -> None:
        first, second = model(), model(INF)
        with torch.no_grad(), armed(tmp_path, ACTS, diagnostics=DUMP):
            for _ in range(4):
                second(first(GOOD))
        assert len(dumped(tmp_path)) == 1

    def test_a_huge_value_and_one_out_of_bounds_are_bad_too(self, tmp_path: Path) -> None:
        net = model(1e20)
        with torch.no_grad(), armed(tmp_path, ACTS, diagnostics=DUMP):
            for _ in range(3):
                net(GOOD)
        (path,) = dumped(tmp_path)
        assert read(path)[1, 2] == 1e20

    def test_a_clean_run_leaves_none(self, tmp_path: Path) -> None:
        with armed(tmp_path, ACTS, diagnostics=DUMP) as left:
            nn.Linear(4, 1)(GOOD)
        assert dumped(tmp_path) == []
        assert left.summary["dump_tensor_dumped"] is False
        assert left.summary["dump_tensor"] is True

    def test_what_nobody_watches_is_not_dumped_in_its_place(self, tmp_path: Path) -> None:
        """With an origin wanted, everything is looked at; the file is that of the first bad record all the same."""
        net = nn.Sequential(Broken(), nn.Identity(), nn.Linear(4, 1))
        with armed(tmp_path, WatchGroup(types=("Linear",), channels=("act",)), diagnostics=DUMP, origin=True) as left:
            for _ in range(2):
                net(GOOD)
        (path,) = dumped(tmp_path)
        assert path.name == "bad_tensor_step2_2_act_rank0.pt"
        assert read(path).shape == (3, 1)
        assert left.summary["first_bad"]["layer"] == "2"

    @pytest.mark.parametrize(
        "make",
        [
            lambda: torch.full((2, 3), NAN).half(),
            lambda: torch.full((2, 3), INF).bfloat16(),
            lambda: torch.full((3,), complex(NAN, 1.0)),
            lambda: torch.full((2, 3), NAN).to_sparse(),
            lambda: torch.full((2, 3), NAN).to(torch.float8_e4m3fn),
            lambda: nn.Parameter(torch.full((2, 3), NAN)),
            lambda: torch.full((3, 2), NAN).T[1:],
            lambda: torch.tensor(NAN),
        ],
        ids=["half", "bfloat16", "complex", "sparse", "float8", "parameter", "view", "scalar"],
    )
    def test_any_kind_of_tensor_can_be_read_back(self, make: Callable[[], Tensor], tmp_path: Path) -> None:
        class Giver(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.scale = nn.Parameter(torch.ones(1))

            def forward(self, x: Tensor) -> Tensor:
                return made

        made = make()
        with armed(tmp_path, ACTS, diagnostics=DUMP):
            Giver()(GOOD)
        (path,) = dumped(tmp_path)
        loaded = read(path)
        assert (loaded.dtype, loaded.shape, loaded.layout) == (made.dtype, made.shape, made.layout)
        dense = (tensor.detach().to_dense() if tensor.is_sparse else tensor.detach() for tensor in (loaded, made))
        first, second = (t if t.is_complex() else t.double() for t in dense)
        assert torch.equal(torch.isnan(first), torch.isnan(second))

    def test_a_view_does_not_drag_its_whole_storage_along(self, tmp_path: Path) -> None:
        net = nn.Sequential(nn.Linear(4, 1), Apply(lambda x: torch.full((1_000_000,), NAN)[:3]))
        with armed(tmp_path, ACTS, diagnostics=DUMP):
            net(GOOD)
        (path,) = dumped(tmp_path)
        assert path.stat().st_size < 10_000

    def test_the_layers_name_is_made_fit_for_a_file(self, tmp_path: Path) -> None:
        log: list[str] = []
        dump = TensorDump(tmp_path, "rank3", log.append)
        dump.save(7, _seen("a/../b.c[0]" + "x" * 500), torch.ones(2))
        (path,) = dumped(tmp_path)
        assert path.parent == tmp_path
        assert path.name.startswith("bad_tensor_step7_a____b_c[0]x")
        assert path.name.endswith("_act_rank3.pt")
        assert len(path.name) < 255
        assert str(path) in log[0]


class Apply(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(x)


def _seen(layer: str) -> Observation:
    return Observation(Site(layer, "fwd", "act"), torch.Size([2]), torch.float32, 1, 0.0, 2, 0.0, 0.0, None, Moment())


class TestDumpThatFails:
    """Only says so, and the program goes on."""

    @pytest.mark.parametrize("obstacle", ["no directory", "full disk", "a directory of that name"])
    def test_it_warns_and_does_not_claim_to_have_dumped(self, obstacle: str, tmp_path: Path) -> None:
        directory, log = tmp_path, list[str]()
        if obstacle == "no directory":
            directory = tmp_path / "gone"
        else:
            path = tmp_path / "bad_tensor_step1_a_act_rank0.pt"
            if obstacle == "full disk":
                path.symlink_to("/dev/full")
            else:
                path.mkdir()
        dump = TensorDump(directory, "rank0", log.append)
        dump.save(1, _seen("a"), torch.ones(2))
        assert not dump.dumped
        (message,) = log
        assert message.startswith("WARNING: dump_tensor failed")

    def test_the_program_gives_the_same_results_and_the_rest_is_recorded(
        self, tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "bad_tensor_step2_1_act_rank0.pt").symlink_to("/dev/full")
        net = model()
        with torch.no_grad(), armed(tmp_path, ACTS, diagnostics=DUMP) as left:
            outputs = [net(GOOD) for _ in range(3)]
        assert all(torch.equal(output, torch.full((3, 4), 7.0)) for output in outputs)
        assert left.summary["dump_tensor_dumped"] is False
        assert left.summary["first_bad"]["layer"] == "1"
        assert capfd.readouterr().err.count("dump_tensor failed") >= 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is an accelerator, whose allocator can be traced")
class TestAllocatorTraceWithoutAccelerator:
    def test_it_is_said_once_and_the_summary_tells(self, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
        with torch.no_grad(), armed(tmp_path, ACTS, diagnostics=frozenset({"alloc_snapshot"})) as left:
            nn.Linear(4, 1)(GOOD)
            for net in (model(), model(INF)):
                for _ in range(3):
                    net(GOOD)
        warnings = [line for line in capfd.readouterr().err.splitlines() if "alloc_snapshot is inactive" in line]
        assert len(warnings) == 1
        assert left.summary["alloc_snapshot"] is True
        assert left.summary["alloc_snapshot_dumped"] is False
        assert list(tmp_path.glob("*.pickle")) == []

    def test_it_can_be_stopped_without_having_been_started(self, tmp_path: Path) -> None:
        log: list[str] = []
        trace = AllocatorTrace(log.append, log.append)
        trace.dump(tmp_path / "trace.pickle")
        trace.stop()
        assert log == []
        assert not trace.dumped


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA or ROCm device")
class TestAllocatorTrace:
    def test_the_trace_up_to_the_first_bad_value_can_be_read(self, tmp_path: Path) -> None:
        net = model().cuda()
        broken = net[1]
        assert isinstance(broken, Broken)
        with torch.no_grad(), armed(tmp_path, ACTS, diagnostics=frozenset({"alloc_snapshot", *DUMP})) as left:
            for _ in range(4):
                net(GOOD.cuda())
        (path,) = tmp_path.glob("alloc_snapshot_step2_rank0.pickle")
        trace = pickle.loads(path.read_bytes())
        assert any(trace["device_traces"])
        assert left.summary["alloc_snapshot_dumped"] is True
        (tensor,) = dumped(tmp_path)
        torch.testing.assert_close(read(tensor), broken.made[1].cpu(), rtol=0, atol=0, equal_nan=True)
