"""Each verdict on what tensors left: real captures, changed in one way each."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from aorta_collectors.api import Verdict
from aorta_collectors.evidence.directory import Anchor
from aorta_collectors.tensors import observe
from aorta_collectors.tensors.collector import Tensors
from tests.tensors.left import ALL_POINTS, Left, armed

ASKED = {"points": ",".join(ALL_POINTS), "keep": "values"}
OPTIONS: dict[str, Any] = {"points": ALL_POINTS, "keep": "values"}


def train(steps: int = 3, bad_at: int | None = None) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(1, steps + 1):
        optimizer.zero_grad()
        batch = torch.randn(2, 4)
        model(batch * float("nan") if step == bad_at else batch).square().sum().backward()
        optimizer.step()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Not to be changed."""
    directory = tmp_path_factory.mktemp("whole") / "tensors"
    with armed(directory, **OPTIONS):
        train()
    return directory


@pytest.fixture
def left(whole: Path, tmp_path: Path) -> Left:
    return Left(Path(shutil.copytree(whole, tmp_path / "tensors")))


def edit(left: Left, change: Callable[[dict[str, Any]], object]) -> None:
    path = left.directory / f"summary_{left.stem}.json"
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def edit_lines(left: Left, change: Callable[[list[dict[str, Any]]], object]) -> None:
    path = left.directory / f"tensors_{left.stem}.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    change(lines)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def second_rank(left: Left, **summary: Any) -> Left:
    """The same files as of another rank."""
    for path in list(left.directory.iterdir()):
        text = path.read_bytes().replace(b"rank0", b"rank1") if path.suffix != ".safetensors" else path.read_bytes()
        (left.directory / path.name.replace("rank0", "rank1")).write_bytes(text)
    other = Left(left.directory, "rank1")
    edit_lines(other, lambda lines: [line.update(rank=1) for line in lines])
    for each in (left, other):
        edit(each, lambda content: content.update(world_size=2))
    edit(other, lambda content: content.update(rank=1, **summary))
    return other


class TestCaptured:
    def test_all_that_was_asked_for(self, left: Left) -> None:
        assert left.told(ASKED) == (
            Verdict.CAPTURED,
            "60 tensor(s) at before_forward, after_forward, after_backward, after_step over 3 step(s), 1 rank(s)",
        )

    def test_two_ranks_and_what_the_receipt_says_of_them(self, left: Left) -> None:
        second_rank(left)
        found = left.verified(ASKED, world_size=2)
        assert found.verdict is Verdict.CAPTURED
        assert found.reason.startswith("120 tensor(s) at ")
        assert [each["files"] for each in found.details["processes"]] == ["rank0", "rank1"]
        assert found.details["processes"][1]["points"]["after_step"] == 12
        json.dumps(found.details)

    def test_a_budget_that_was_reached_is_told(self, tmp_path: Path) -> None:
        with armed(tmp_path / "tensors", **OPTIONS, max_bytes=100) as left:
            train()
        verdict, reason = left.told({**ASKED, "max_bytes": "100"})
        assert verdict is Verdict.CAPTURED
        assert reason.endswith("; values of 56 tensor(s) not kept (max_bytes)")

    def test_lines_that_there_was_no_room_for_are_told(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("aorta_collectors.tensors.recorder.Recorder.__init__.__kwdefaults__", {"most_lines": 25})
        with armed(tmp_path / "tensors", points=ALL_POINTS) as left:
            train()
        verdict, reason = left.told({"points": ASKED["points"]})
        assert verdict is Verdict.CAPTURED
        assert reason.endswith("; 35 tensor(s) came by when there was no room for further lines")

    def test_tensors_without_a_digest_are_told(self, tmp_path: Path) -> None:
        with armed(tmp_path / "tensors", points=ALL_POINTS) as left:
            train()
            observe(torch.eye(3).to_sparse(), name="x")
            observe(torch.empty(3, device="meta"), name="y")
        assert left.told({"points": ASKED["points"]})[1].endswith(
            "3 step(s), 1 rank(s); 1 tensor(s) without a digest (layout sparse_coo)"
        )

    def test_a_program_that_ended_over_what_was_seen(self, tmp_path: Path) -> None:
        with armed(tmp_path / "tensors", points=ALL_POINTS) as left:
            train(bad_at=1)
        edit(left, lambda content: content.update(ended_by="RuntimeError: nan", points={"after_forward": 1}))
        assert left.told({"points": ASKED["points"]})[0] is Verdict.CAPTURED

    def test_a_pattern_that_one_rank_has_nothing_for(self, tmp_path: Path) -> None:
        with armed(tmp_path / "tensors", scope=("2",)) as left:
            train()
        second_rank(left)
        edit(left, lambda content: content.update(unmatched_scope=["2"]))
        verdict, reason = left.told({"scope": "2"})
        assert verdict is Verdict.CAPTURED
        assert reason.endswith("; scope: no module is called '2' on rank(s) 0")


def without(*names: str) -> Callable[[Left], None]:
    def change(left: Left) -> None:
        for name in names:
            (left.directory / name).unlink()

    return change


def with_summary(**fields: Any) -> Callable[[Left], None]:
    return lambda left: edit(left, lambda content: content.update(fields))


def with_line(number: int, **fields: Any) -> Callable[[Left], None]:
    return lambda left: edit_lines(left, lambda lines: lines[number].update(fields))


def flipped(left: Left) -> None:
    path = left.directory / "values_rank0_step2.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))


def torn(left: Left) -> None:
    path = left.directory / "values_rank0_step2.safetensors"
    path.write_bytes(path.read_bytes()[:-8])


def no_tensors(left: Left) -> None:
    (left.directory / "values_rank0_step2.safetensors").write_bytes(b"\xff" * 100)


def doubled(left: Left) -> None:
    def twice(lines: list[dict[str, Any]]) -> None:
        lines[5] = dict(lines[4])

    edit_lines(left, twice)


def cut(left: Left) -> None:
    path = left.directory / "tensors_rank0.jsonl"
    path.write_bytes(path.read_bytes()[:-10])


DIED = {"status": "running", "ended_by": None}


class TestWhatIsWrong:
    @pytest.mark.parametrize(
        ("change", "verdict", "reason"),
        [
            (without("summary_rank0.json"), Verdict.MISSING, "no summary_rank<N>.json: the program ended before it"),
            (with_summary(run_id="another"), Verdict.STALE, "summary_rank0.json is from another run (run id another"),
            (with_summary(points=3), Verdict.INVALID, "summary_rank0.json: points: must be an object, got 3"),
            (without("tensors_rank0.jsonl"), Verdict.INVALID, "tensors_rank0.jsonl is missing beside its summary"),
            (cut, Verdict.INVALID, "tensors_rank0.jsonl: line 60 is torn off"),
            (with_line(3, digest="md5:0"), Verdict.INVALID, "tensors_rank0.jsonl: line 4: digest: must "),
            (with_line(3, pid=1), Verdict.STALE, "tensors_rank0.jsonl: line 4 is from process 1, not from this trial"),
            (with_line(3, step=4), Verdict.INVALID, "tensors_rank0.jsonl: line 4: step 4 of 3"),
            (
                doubled,
                Verdict.INVALID,
                "tensors_rank0.jsonl: after_forward:1.output of invocation 0 (order 4) is told twice",
            ),
            (
                without("values_rank0_step2.safetensors"),
                Verdict.INVALID,
                "values_rank0_step2.safetensors is missing: 20 tensor(s) are said to lie there",
            ),
            (
                with_line(0, file="../../values_rank0_step1.safetensors"),
                Verdict.INVALID,
                "tensors_rank0.jsonl: before_forward:(root).input[0]: ../../values_rank0_step1.safetensors is no",
            ),
            (
                with_line(0, key="x#0"),
                Verdict.INVALID,
                "values_rank0_step1.safetensors: x#0 is not in there",
            ),
            (
                with_line(0, shape=[4, 2]),
                Verdict.INVALID,
                "values_rank0_step1.safetensors: before_forward:(root).input[0]#0: [2, 4], but the line says [4, 2]",
            ),
            (
                with_line(0, dtype="float64"),
                Verdict.INVALID,
                (
                    "values_rank0_step1.safetensors: before_forward:(root).input[0]#0: [2, 4] of float32, but the line "
                    "says [2, 4] of float64"
                ),
            ),
            (flipped, Verdict.INVALID, "values_rank0_step2.safetensors: "),
            (torn, Verdict.INVALID, "values_rank0_step2.safetensors: "),
            (no_tensors, Verdict.INVALID, "values_rank0_step2.safetensors: no safetensors: it is torn off"),
            (
                with_summary(watched_count=0, tensors_observed=0, roots=[], modules_built=0),
                Verdict.UNATTACHED,
                "the program built no PyTorch model itself",
            ),
            (
                with_summary(watched_count=0, tensors_observed=0),
                Verdict.UNATTACHED,
                "no module of Sequential is in scope, or was called so that it could be seen",
            ),
            (
                with_summary(config={"points": ["after_forward"], "scope": None, "keep": "values"}),
                Verdict.MISAPPLIED,
                "summary_rank0.json: points in force is after_forward, asked for before_forward,after_forward,",
            ),
            (
                with_summary(unmatched_scope=["h.*"]),
                Verdict.MISAPPLIED,
                "summary_rank0.json: scope: no module is called 'h.*'; a pattern is of a module's path below the model",
            ),
            (with_summary(**DIED), Verdict.INCOMPLETE, "rank 0 died in step 3; evidence ends there"),
            (
                with_summary(ended_by="RuntimeError: boom"),
                Verdict.INCOMPLETE,
                "rank 0 ended in step 3 with RuntimeError: boom, before anything bad was seen",
            ),
            (
                with_summary(hook_errors=2, first_hook_error="KeyError: 1"),
                Verdict.INCOMPLETE,
                "rank 0, by step 3: 2 exception(s) in hooks, the first of them KeyError: 1",
            ),
            (with_summary(write_error="disk full"), Verdict.INCOMPLETE, "rank 0 could not write on: disk full"),
            (
                with_summary(points={"after_forward": 3, "after_backward": 1, "after_step": 1}),
                Verdict.INCOMPLETE,
                (
                    "rank 0: no tensor was observed at before_forward: no module in scope had a tensor there in an "
                    "observed step; widen scope or steps, or leave before_forward out of points"
                ),
            ),
            (
                lambda left: (left.directory / "tensors_rank1.jsonl").write_text(""),
                Verdict.INCOMPLETE,
                "tensors_rank1.jsonl has no summary beside it",
            ),
            (with_summary(world_size=3), Verdict.INCOMPLETE, "no evidence from rank(s) 1, 2 of 3"),
        ],
    )
    def test_has_a_verdict_and_words(
        self, left: Left, change: Callable[[Left], object], verdict: Verdict, reason: str
    ) -> None:
        change(left)
        found = left.told(ASKED)
        assert (found[0], found[1][: len(reason)]) == (verdict, reason)

    def test_the_bits_of_each_tensor_are_looked_at(self, left: Left) -> None:
        flipped(left)
        assert "its bits are not those of sha256:" in left.told(ASKED)[1]


class TestPointsThatTheRunDoesNotHave:
    def run(self, tmp_path: Path, program: Callable[[nn.Module], object], **options: Any) -> tuple[Verdict, str]:
        model = nn.Sequential(nn.Linear(2, 2))
        with armed(tmp_path / "tensors", **options) as left:
            program(model)
        raw = {name: ",".join(value) for name, value in options.items()}
        return left.told(raw)

    def test_no_backward_pass(self, tmp_path: Path) -> None:
        verdict, reason = self.run(tmp_path, lambda model: model(torch.ones(1, 2)), points=("after_backward",))
        assert verdict is Verdict.INCOMPLETE
        assert reason == (
            "rank 0: no tensor was observed at after_backward: no backward pass ended; leave after_backward out of "
            "points, or run what has it"
        )

    def test_no_optimizer(self, tmp_path: Path) -> None:
        verdict, reason = self.run(
            tmp_path, lambda model: model(torch.ones(1, 2)).sum().backward(), points=("after_step",)
        )
        assert verdict is Verdict.INCOMPLETE
        assert "no tensor was observed at after_step: no optimizer of torch.optim stepped; leave after_step" in reason

    def test_points_that_nobody_named_need_not_come(self, tmp_path: Path) -> None:
        assert self.run(tmp_path, lambda model: model(torch.ones(1, 2))) == (
            Verdict.CAPTURED,
            (
                "2 tensor(s) at after_forward over 1 step(s), 1 rank(s); nothing at after_backward: no backward pass "
                "ended on rank(s) 0"
            ),
        )

    def test_no_step_that_was_asked_for(self, tmp_path: Path) -> None:
        assert self.run(
            tmp_path, lambda model: model(torch.ones(1, 2)), points=("after_forward",), steps=("5", "7-")
        ) == (
            Verdict.INCOMPLETE,
            "rank 0: no tensor was observed at after_forward: 1 step(s) ran, none of which is among steps 5, 7-",
        )

    def test_one_of_the_steps_that_were_asked_for(self, tmp_path: Path) -> None:
        assert self.run(
            tmp_path, lambda model: model(torch.ones(1, 2)), points=("after_forward",), steps=("1", "7-")
        ) == (Verdict.INCOMPLETE, "steps: 7- was asked for, but 1 step(s) ran; name steps that run")

    def test_no_module_in_scope(self, tmp_path: Path) -> None:
        verdict, reason = self.run(tmp_path, lambda model: model(torch.ones(1, 2)), scope=("h.*",))
        assert verdict is Verdict.UNATTACHED
        assert "no module of Sequential is in scope" in reason


class TestMetrics:
    def metrics(self, left: Left) -> Mapping[str, float | int | str]:
        with Anchor(left.directory.parent).open(left.directory) as artifacts:
            return Tensors().summarize(artifacts)

    def test_of_a_clean_run_of_two_ranks(self, left: Left) -> None:
        second_rank(left)
        assert self.metrics(left) == {
            "tensors_steps": 3,
            "tensors_ranks": 2,
            "tensors_observed": 120,
            "tensors_nonfinite": 0,
            "tensors_stored_bytes": 2 * 3 * 4 * (28 + 20 + 20 + 23 + 23),
            "tensors_left_out": 0,
        }

    def test_the_first_that_is_not_finite(self, tmp_path: Path) -> None:
        with armed(tmp_path / "tensors", points=ALL_POINTS) as left:
            train(bad_at=2)
        found = self.metrics(left)
        assert {key: value for key, value in found.items() if "first" in key} == {
            "tensors_first_nonfinite_step": 2,
            "tensors_first_nonfinite_layer": "(root)",
            "tensors_first_nonfinite_name": "before_forward:(root).input[0]",
            "tensors_first_nonfinite_kind": "nan",
            "tensors_first_nonfinite_rank": 0,
        }

    def test_one_that_came_to_nothing(self, tmp_path: Path) -> None:
        with armed(tmp_path / "tensors") as left:
            for number in (1.0, float("inf"), 1.0):
                observe(torch.tensor([number]), name="x")
                nn.Linear(1, 1)(torch.ones(1)).sum().backward()
        assert self.metrics(left)["tensors_first_nonfinite_by_design"] == 1
        with_summary(last_nonfinite_step=None)(left)  # as of one that does not say so
        assert "tensors_first_nonfinite_by_design" not in self.metrics(left)
