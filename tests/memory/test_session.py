"""One armed stretch of this process: which points have lines, under which names, and nothing of the program changes."""

from __future__ import annotations

import gc
import os
import signal
import threading
import tracemalloc
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from aorta_collectors.memory import point
from aorta_collectors.memory.config import Config
from aorta_collectors.memory.marker import Points
from aorta_collectors.memory.output import Output
from aorta_collectors.memory.stacks import is_ours
from aorta_collectors.observe.process.place import Place
from tests.memory.left import Left, armed
from tests.memory.snapshots import Replayed, stats
from tests.numerics.forked import in_a_fork

MIB = 1 << 20
STEP = ["before_forward", "after_forward", "after_backward", "after_step"]
NO_NAMES: list[Any] = ["", "  ", "a\nb", "x" * 201, 3]
FILES = {"summary_rank0.json", "memory_rank0.jsonl", "growth_rank0.jsonl"}


def train(steps: int = 3, kept: list[bytearray] | None = None) -> list[float]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 1))
    if kept is not None:
        model[1].register_forward_hook(lambda module, args, output: kept.append(bytearray(MIB)))  # planted
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(torch.randn(8, 4)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


class TestWarnings:
    def test_what_was_asked_for_and_never_came_is_told(self, tmp_path: Path) -> None:
        with armed(tmp_path, scope=("blok*", "(root)"), steps=("1", "2-", "100", "200-300")):
            train(1)
        assert Left(tmp_path).summary["warnings"] == [
            "scope: no module matches blok*",
            "steps: 2-,100,200-300 asked for, and 1 step(s) ran",
        ]

    def test_that_evidence_of_an_earlier_launch_is_replaced_is_told(self, tmp_path: Path) -> None:
        warnings: list[str] = []
        place = Place(tmp_path / "memory_rank0.jsonl", tmp_path / "summary_rank0.json", 0, 1)
        for content, told in (("", 0), ("{}\n", 1)):
            place.records.write_text(content)
            Output(place, warnings.append, grows=False)
            assert len(warnings) == told
        assert str(place.records) in warnings[0]


class TestPoints:
    def test_what_is_no_name_is_not_looked_at_and_told(self, tmp_path: Path) -> None:
        with armed(tmp_path):
            train(1)
            for name in NO_NAMES * 2:
                point(name)
        left = Left(tmp_path)
        assert left.names == STEP
        assert len([warning for warning in left.summary["warnings"] if "is not looked at: a name has" in warning]) == 5

    def test_those_that_a_signal_handler_makes_come_in_order_and_once(self, tmp_path: Path) -> None:
        before = signal.signal(signal.SIGALRM, lambda number, frame: point("alarm"))
        try:
            with armed(tmp_path, scope=("*",)) as session:
                signal.setitimer(signal.ITIMER_REAL, 0.001, 0.0003)
                train(40)
                signal.setitimer(signal.ITIMER_REAL, 0)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        left = Left(tmp_path)
        assert [line["order"] for line in left.points] == list(range(len(left.points)))
        assert len([name for name in left.names if name == "user:alarm"]) > 3
        assert left.summary["hook_errors"] == 0
        assert session.in_forked_child is False

    def test_each_step_has_the_four_and_they_fit_their_schema(self, tmp_path: Path) -> None:
        with armed(tmp_path):
            train()
        left = Left(tmp_path)
        assert {path.name for path in tmp_path.iterdir()} == FILES
        assert left.names == STEP * 3
        for order, line in enumerate(left.points):
            step, index = divmod(order, 4)
            assert (line["order"], line["step"], line["invocation"]) == (order, step + 1, step)
            assert (line["point"], line["layer"], line["devices"]) == (STEP[index], "", [])
            assert line["host"]["peak_rss"] >= line["host"]["rss"] > line["host"]["anonymous"] > 0
        times = [line["time_ns"] for line in left.points]
        assert times == sorted(times)
        assert left.growth == []

    def test_the_summary_says_what_came_and_what_it_took_to_look(self, tmp_path: Path) -> None:
        with armed(tmp_path):
            train()
        summary = Left(tmp_path).summary
        assert (summary["status"], summary["run_id"], summary["config"]) == ("complete", "the trial", _default())
        assert (summary["steps_seen"], summary["hook_errors"], summary["roots"]) == (3, 0, ["Sequential"])
        assert summary["files"] == {"memory": {"written": 12, "dropped": 0}, "growth": {"written": 0, "dropped": 0}}
        assert {kind: (told["seen"], told["taken"]) for kind, told in summary["points"].items()} == dict.fromkeys(
            STEP, (3, 3)
        )
        last = Left(tmp_path).points[-1]["host"]
        assert summary["points"]["after_step"]["last"] == {
            "step": 3,
            "rss": last["rss"],
            "anonymous": last["anonymous"],
        }
        assert summary["peak_rss"] >= last["rss"]
        assert summary["history"] == {"host": "state only"}
        assert summary["overhead"]["looks"] == 12
        assert 0 < summary["overhead"]["look_us_p50"] <= summary["overhead"]["look_us_p95"]
        assert summary["seeds"]["torch_seed"] is not None
        assert summary["environment"]["torch"]["version"] == torch.__version__

    def test_modules_are_looked_around_by_their_paths(self, tmp_path: Path) -> None:
        with armed(tmp_path, points=("after_step",), scope=("[03]", "(root)", "nowhere.*")):
            train(2)
        left = Left(tmp_path)
        step = [
            *("before_forward:(root)", "before_forward:0", "after_forward:0", "before_forward:3", "after_forward:3"),
            *("after_forward:(root)", "after_step"),
        ]
        assert left.names == step * 2
        assert [line["layer"] for line in left.points[:7]] == ["(root)", "0", "0", "3", "3", "(root)", ""]
        summary = left.summary
        assert (summary["watched_count"], summary["called_count"]) == (3, 3)
        assert summary["unmatched_scope"] == ["nowhere.*"]
        assert summary["points"]["layers"]["taken"] == 12

    def test_steps_that_are_not_asked_for_count_all_the_same(self, tmp_path: Path) -> None:
        with armed(tmp_path, steps=("2", "4-"), points=("before_forward", "after_step")):
            point("loaded")
            train(5)
        left = Left(tmp_path)
        assert [(line["step"], line["invocation"]) for line in left.points] == [
            (step, step - 1) for step in (2, 4, 5) for _ in range(2)
        ]
        assert [line["order"] for line in left.points] == list(range(6))
        assert left.summary["points"]["before_forward"]["seen"] == 5
        assert left.summary["points"]["user"] == {"seen": 1, "taken": 0, "first": None, "last": None}

    def test_a_program_s_own_are_beside_them(self, tmp_path: Path) -> None:
        with armed(tmp_path, points=("after_step",)):
            point("loaded")
            train(2)
            point("saved")
            point("saved")
        names = [(line["name"], line["step"], line["invocation"]) for line in Left(tmp_path).points]
        assert names == [
            ("user:loaded", 0, 0),
            ("after_step", 1, 0),
            ("after_step", 2, 1),
            ("user:saved", 2, 0),
            ("user:saved", 2, 1),
        ]
        assert {line["point"] for line in Left(tmp_path).points} == {"user", "after_step"}

    def test_a_program_without_a_model_has_its_own_alone(self, tmp_path: Path) -> None:
        with armed(tmp_path):
            point("here")
        assert Left(tmp_path).names == ["user:here"]
        assert Left(tmp_path).summary["roots"] == []

    def test_lines_are_there_as_soon_as_a_point_has_been(self, tmp_path: Path) -> None:
        """The process may be killed for what it holds."""
        seen: list[list[str]] = []

        class Model(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.parts = nn.ModuleList(nn.Linear(4, 4) for _ in range(40))

            def forward(self, x: Tensor) -> Tensor:
                for part in self.parts:
                    x = part(x)
                seen.append(Left(tmp_path).names)
                return x

        with armed(tmp_path, scope=("parts.*",)):
            point("built")
            Model()(torch.ones(2, 4))
            seen.append(Left(tmp_path).names)
            point("done")
            seen.append(Left(tmp_path).names)
        inside, after, last = seen
        assert inside[:3] == ["user:built", "before_forward", "before_forward:parts.0"]
        assert 66 <= len(inside) <= 82
        assert after == Left(tmp_path).names[:83]
        assert (len(after), after[-1]) == (83, "after_forward")
        assert last == [*after, "user:done"]

    def test_a_device_that_is_used_between_two_points_is_found_at_the_second(self, tmp_path: Path) -> None:
        allocator = Replayed([stats()], [])
        with armed(tmp_path, allocator):
            point("before")
            allocator.of_devices[0] = stats(allocated=MIB, active=MIB, reserved=MIB, requested=MIB)
            point("after")
            train(1)
        assert [len(line["devices"]) for line in Left(tmp_path).points] == [0, 1, 1, 1, 1, 1]

    def test_names_that_never_end_are_bounded(self, tmp_path: Path) -> None:
        with armed(tmp_path):
            train(1)
            for number in range(10_010):
                point(f"number {number}")
        summary = Left(tmp_path).summary
        assert summary["files"]["memory"] == {"written": 10_000, "dropped": 14}
        assert summary["points"]["user"]["seen"] == 10_010

    def test_points_that_come_before_there_is_a_place_for_them_are_bounded(self, tmp_path: Path) -> None:
        with armed(tmp_path):
            for _ in range(1100):
                point("early")
            train(1)
        left = Left(tmp_path)
        assert left.summary["files"]["memory"] == {"written": 1004, "dropped": 100}
        assert [line["order"] for line in left.points] == list(range(1004))
        assert left.points[-1]["invocation"] == 0


class TestWithoutASession:
    def test_a_point_is_nothing(self, tmp_path: Path) -> None:
        point("nobody looks")
        assert Points.find() is None
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("name", NO_NAMES)
    def test_what_is_no_name_ends_no_program(self, name: Any) -> None:
        """One that is made from data may turn out so after hours."""
        point(name)


class TestTheProgram:
    @pytest.mark.parametrize("options", [{}, {"scope": ("*",), "detail": "totals"}], ids=["default", "every module"])
    def test_its_losses_are_the_same_bit_for_bit(self, tmp_path: Path, options: dict[str, Any]) -> None:
        bare = train(5)
        with armed(tmp_path, **options):
            assert train(5) == bare

    def test_nothing_is_left_hanging(self, tmp_path: Path) -> None:
        from torch.nn.modules import module as torch_module

        before = dict(torch_module._global_buffer_registration_hooks)
        files = len(os.listdir("/proc/self/fd"))
        with armed(tmp_path):
            train(1)
        assert dict(torch_module._global_buffer_registration_hooks) == before
        assert len(os.listdir("/proc/self/fd")) == files

    def test_a_fork_is_not_observed(self, tmp_path: Path) -> None:
        with armed(tmp_path):
            train(1)

            def work() -> None:
                point("in the fork")
                train(2)

            pid, status = in_a_fork(work)
            assert status == 0
            train(1)
        assert {path.name for path in tmp_path.iterdir()} == {*FILES, f"unobserved_p{pid}.json"}
        assert Left(tmp_path).names == STEP * 2

    def test_a_point_inside_of_compiled_code_does_not_cut_it_in_two(self, tmp_path: Path) -> None:
        class Model(nn.Module):
            def forward(self, x: Tensor) -> Tensor:
                point("inside")
                return x * 2

        with armed(tmp_path):
            model = torch.compile(Model(), backend="eager", fullgraph=True)
            assert model(torch.ones(2)).tolist() == [2.0, 2.0]
        assert Left(tmp_path).summary["hook_errors"] == 0

    def test_threads_that_call_models_at_once_share_one_order(self, tmp_path: Path) -> None:
        with armed(tmp_path, scope=("*",)):
            train(1)
            threads = [threading.Thread(target=train, args=(3,)) for _ in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        left = Left(tmp_path)
        assert left.summary["hook_errors"] == 0
        assert [line["order"] for line in left.points] == list(range(len(left.points)))

    def test_looking_takes_no_memory_that_stays(self, tmp_path: Path) -> None:
        """What is ours would otherwise be found, step by step, as if the program had taken it."""
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def train_on(steps: int) -> None:
            for _ in range(steps):
                optimizer.zero_grad()
                model(torch.ones(2, 4)).sum().backward()
                optimizer.step()

        def taken() -> int:
            gc.collect()
            traces = tracemalloc.take_snapshot().traces
            return sum(trace.size for trace in traces if is_ours(trace.traceback[-1].filename))

        with armed(tmp_path, scope=("*",), stacks=0):
            train_on(20)
            tracemalloc.start()
            try:
                train_on(50)
                first = taken()
                train_on(200)
                second = taken()
            finally:
                tracemalloc.stop()
        assert second - first < 10_000


class TestStacks:
    def test_the_line_that_took_memory_in_a_phase_is_named_there(self, tmp_path: Path) -> None:
        kept: list[bytearray] = []
        tracemalloc.start()
        try:
            with armed(tmp_path, stacks=3):
                train(4, kept)
        finally:
            tracemalloc.stop()
        left = Left(tmp_path)
        assert left.summary["history"] == {"host": "recorded"}
        points = left.points
        # Nothing else takes as much as is worth a look.
        assert [line["until"]["name"] for line in left.growth] == ["after_forward"] * 4
        assert [line["since"]["order"] for line in left.growth] == [0, 1, 5, 9]
        for line in left.growth:
            assert (line["memory"], line["source"], len(line["stacks"]) <= 3) == ("host", "tracemalloc", True)
            since, until = points[line["since"]["order"]], points[line["until"]["order"]]
            assert line["step"] == until["step"]
            assert (line["since"]["name"], line["until"]["invocation"]) == (since["name"], until["invocation"])
            assert line["bytes"] == until["host"]["python"] - since["host"]["python"]
            first = line["stacks"][0]
            assert (first["frames"][0]["file"], first["frames"][0]["line"]) == (__file__, _line_of("# planted"))
            assert MIB <= first["bytes"] < MIB + 1000
        for before, after in pairwise(points):
            grown = after["host"]["python"] - before["host"]["python"]
            assert (grown > MIB / 2) == (after["name"] == "after_forward")

    def test_without_a_record_or_without_asking_there_are_none(self, tmp_path: Path) -> None:
        tracemalloc.start()
        try:
            with armed(tmp_path, stacks=0):
                train(1)
        finally:
            tracemalloc.stop()
        left = Left(tmp_path)
        assert left.summary["history"] == {}
        assert "growth_rank0.jsonl" not in {path.name for path in tmp_path.iterdir()}
        assert all(line["host"]["python"] > 0 for line in left.points)

    def test_what_is_traced_from_some_point_on_is_told_from_there(self, tmp_path: Path) -> None:
        kept: list[bytearray] = []
        with armed(tmp_path, points=("before_forward",)):
            train(2)
            tracemalloc.start()
            try:
                train(3, kept)
            finally:
                tracemalloc.stop()
            train(2)
        left = Left(tmp_path)
        assert [line["host"]["python"] is None for line in left.points] == [
            *(True, True, False, False, False, True, True)
        ]
        assert [(line["since"]["order"], line["until"]["order"]) for line in left.growth] == [(2, 3), (3, 4)]


def _default() -> dict[str, Any]:
    told = Config().describe()
    assert told == {"points": STEP, "scope": None, "steps": None, "detail": "pools", "stacks": 10}
    return told


def _line_of(marker: str) -> int:
    lines = Path(__file__).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith(marker))
