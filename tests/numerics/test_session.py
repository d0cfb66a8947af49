"""One armed stretch of this process: its files fit their schemas, and nothing of the program is changed."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from aorta_collectors.numerics import step
from aorta_collectors.numerics.config import Config
from aorta_collectors.numerics.part import Part, StepTrace
from aorta_collectors.numerics.session import Session
from tests.numerics.armed import armed as armed_engine
from tests.numerics.forked import in_a_fork
from tests.numerics.left import Left
from tests.numerics.spans.test_otlp import Receiver

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@contextlib.contextmanager
def armed(directory: Path, **options: Any) -> Iterator[Session]:
    session = Session(Config(**options), lambda: directory, lambda: "the trial")
    session.arm()
    try:
        yield session
    finally:
        session.close()


def losses(steps: int = 3) -> list[float]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    found = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(torch.randn(8, 4)).square().mean()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


FILES = {"summary_rank0.json", "spans_rank0.jsonl"}


class TestFiles:
    @pytest.mark.parametrize(
        ("options", "files"),
        [
            ({}, {"steps_rank0.jsonl"}),
            ({"trace": "none"}, {"steps_rank0.jsonl"}),
            ({"trace": "layer", "step_metrics": "off"}, {"stats_rank0.jsonl"}),
            (
                {"trace": "payload", "stats_every": 2},
                {"stats_rank0.jsonl", "steps_rank0.jsonl"}
                | {f"payload_rank0_step{step}.safetensors" for step in (1, 3)},
            ),
            ({"profile": "deferred", "escalate": "off", "step_metrics": "off"}, set()),
        ],
        ids=lambda value: " ".join(map(str, value.values())) if isinstance(value, dict) else "",
    )
    def test_each_kind_that_is_asked_for_is_there_and_fits_its_schema(
        self, tmp_path: Path, options: dict[str, Any], files: set[str]
    ) -> None:
        with armed(tmp_path, **options):
            losses()
        left = Left(tmp_path)
        assert left.names == FILES | files
        summary = left.summary
        assert (summary["status"], summary["ended_by"], summary["run_id"]) == ("complete", "exit", "the trial")
        assert (summary["steps_seen"], summary["optimizer_steps"], summary["hook_errors"]) == (3, 3, 0)
        assert (summary["config"], summary["device"]) == (Config(**options).describe(), "cpu")
        assert set(summary["files"]) == {name.partition("_")[0] for name in left.names if name.endswith(".jsonl")}
        for kind, counts in summary["files"].items():
            assert counts == {"written": len(left.lines(kind)), "dropped": 0}
        assert bool(left.lines("spans")) == (options.get("trace") != "none")

    def test_spans_are_a_tree_below_that_of_the_process(self, tmp_path: Path) -> None:
        with armed(tmp_path):
            losses()
        spans = Left(tmp_path).lines("spans")
        known = {span["span_id"] for span in spans}
        assert len(known) == len(spans)
        assert {span["trace_id"] for span in spans} == {Left(tmp_path).summary["trace_id"]}
        root = next(span for span in spans if span["kind"] == "process")
        assert [span["kind"] for span in spans if span["parent_span_id"] not in known] == ["process"]
        assert min(span["start_ns"] for span in spans) == root["start_ns"]
        assert len({span["lamport"] for span in spans}) == len(spans)

    def test_those_of_an_earlier_launch_are_replaced(self, tmp_path: Path) -> None:
        with armed(tmp_path, trace="payload"):
            losses()
        with armed(tmp_path, trace="basic"):
            losses(1)
        second = Left(tmp_path, f"rank0_p{os.getpid()}")  # of the same trial: another process of the rank
        assert second.summary["steps_seen"] == 1
        for name in ("spans_rank0.jsonl", f"spans_rank0_p{os.getpid()}.jsonl"):
            (tmp_path / name).unlink()
        with armed(tmp_path, trace="basic"):
            losses(2)
        assert Left(tmp_path).summary["steps_seen"] == 2
        assert not [name for name in Left(tmp_path).names if name.startswith("payload_rank0_step")]


class TestTheProgram:
    @pytest.mark.parametrize("trace", ["basic", "payload"])
    def test_its_losses_are_the_same_bit_for_bit(self, tmp_path: Path, trace: str) -> None:
        bare = losses()
        with armed(tmp_path, trace=trace, profile="deferred", escalate="off"):
            assert losses() == bare

    def test_its_environment_has_the_trace_while_it_is_observed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TRACEPARENT", PARENT)
        monkeypatch.setenv("TRACESTATE", "aorta=100,other=x")
        with armed(tmp_path):
            losses()
            inside = os.environ["TRACEPARENT"], os.environ["TRACESTATE"]
        assert (os.environ["TRACEPARENT"], os.environ["TRACESTATE"]) == (PARENT, "aorta=100,other=x")
        spans = Left(tmp_path).lines("spans")
        process = next(span for span in spans if span["kind"] == "process")
        assert (process["trace_id"], process["parent_span_id"]) == (PARENT[3:35], PARENT[36:52])
        assert inside[0] == f"00-{process['trace_id']}-{process['span_id']}-01"
        clock = int(inside[1].partition(",")[0].removeprefix("aorta="))
        assert min(span["lamport"] for span in spans) > 100
        assert clock > 100
        assert Left(tmp_path).summary["parent_span_id"] == PARENT[36:52]

    def test_a_fork_that_trains_leaves_a_note_and_nothing_else(self, tmp_path: Path) -> None:
        with armed(tmp_path):
            losses(1)
            pid, status = in_a_fork(lambda: losses(2))
            assert status == 0
            losses(1)
        left = Left(tmp_path)
        assert left.names == {*FILES, "steps_rank0.jsonl", f"unobserved_p{pid}.json"}
        assert left.summary["steps_seen"] == 2

    def test_nothing_asked_for_is_nothing_set_and_nothing_left(self, tmp_path: Path) -> None:
        directory = tmp_path / "out"
        environment = dict(os.environ)
        with armed(directory, trace="none", step_metrics="off") as session:
            from torch.nn.modules import module as torch_module

            assert not torch_module._global_forward_pre_hooks
            assert not torch_module._global_module_registration_hooks
            losses()
            assert session.engine.step == 0
            assert dict(os.environ) == environment
        assert not directory.exists()


def test_the_spans_that_are_written_are_sent_on_to_a_receiver(tmp_path: Path) -> None:
    receiver = Receiver()
    try:
        with armed(tmp_path, otlp_endpoint=receiver.endpoint):
            losses()
    finally:
        receiver.close()
    written = {span["span_id"] for span in Left(tmp_path).lines("spans")}
    assert {span.span_id.hex() for span in receiver.spans} == written
    told = Left(tmp_path).summary["otlp"]
    assert (told["sent"], told["dropped"], told["error"]) == (len(written), 0, None)


def test_threads_that_call_their_models_first_at_once_share_one_set_of_files(tmp_path: Path) -> None:
    models = [nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)) for _ in range(4)]
    ready = threading.Barrier(len(models))

    def work(model: nn.Module) -> None:
        ready.wait()
        for _ in range(5):
            model(torch.ones(1, 4))

    with armed(tmp_path, trace="layer", stats_every=1):
        threads = [threading.Thread(target=work, args=(model,)) for model in models]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    left = Left(tmp_path)
    assert left.names == {*FILES, "stats_rank0.jsonl", "steps_rank0.jsonl"}
    summary = left.summary
    assert (summary["hook_errors"], summary["first_hook_error"], len(summary["roots"])) == (0, None, 4)
    assert [line["step"] for line in left.lines("steps")] == list(range(1, summary["steps_seen"] + 1))
    assert len([line for line in left.lines("stats") if line["layer"].endswith("2")]) == 4 * 5
    spans = {span["span_id"]: span for span in left.lines("spans")}
    assert len([span for span in spans.values() if span["name"] == "FORWARD"]) == 4 * 5
    for span in spans.values():
        parent = spans.get(span["parent_span_id"])
        if parent is not None:
            assert parent["start_ns"] <= span["start_ns"]
            assert parent["lamport"] < span["lamport"]


class Slow(Part):
    """Takes its time between two steps."""

    def step_ended(self, trace: StepTrace) -> None:
        time.sleep(0.05)


def test_steps_of_several_threads_end_one_after_another(tmp_path: Path) -> None:
    with armed_engine(Slow(), step_metrics="off") as seen:
        threads = [threading.Thread(target=losses, args=(3,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [trace.step for trace in seen.traces] == list(range(1, seen.engine.step + 1))
    assert len([span for span in seen.spans if span.name == "FORWARD"]) == 9


def test_spans_that_lie_in_no_step_are_written(tmp_path: Path) -> None:
    environment = dict(os.environ)
    with armed(tmp_path), step("BEFORE"):
        pass
    assert dict(os.environ) == environment
    with armed(tmp_path / "other"):
        losses(1)
        started, go_on = threading.Event(), threading.Event()

        def late() -> None:
            with step("LATE"):
                started.set()
                go_on.wait()

        thread = threading.Thread(target=late)
        thread.start()
        started.wait()
        go_on.set()
        thread.join()
    assert {"BEFORE"} < {span["name"] for span in Left(tmp_path).lines("spans")}
    assert "LATE" in {span["name"] for span in Left(tmp_path / "other").lines("spans")}


def test_each_step_is_said_by_rank_0_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for rank, said in (("0", 3), ("1", 0)):
        monkeypatch.setenv("RANK", rank)
        monkeypatch.setenv("WORLD_SIZE", "2")
        with armed(tmp_path, interval=2):
            losses()
        err = capfd.readouterr().err
        assert (err.count(" loss="), err.count("steps 1-2")) == (said, said // 3)
        assert f"summary -> {tmp_path}/summary_rank{rank}.json" in err


def test_without_a_model_the_summary_says_so(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with armed(tmp_path):
        pass
    assert Left(tmp_path).summary["roots"] == []
    assert "numerics: WARNING: no PyTorch model was called" in capfd.readouterr().err


class Failing(Part):
    """A part that cannot say what it has seen."""

    def fields(self) -> dict[str, Any]:
        raise RuntimeError("lost")


def test_a_part_that_fails_to_tell_is_an_error_of_ours_and_the_others_are_told(tmp_path: Path) -> None:
    with armed(tmp_path) as session:
        session._parts.append(Failing())
        losses()
    summary = Left(tmp_path).summary
    assert (summary["status"], summary["hook_errors"]) == ("complete", 1)
    assert summary["first_hook_error"] == "RuntimeError: lost"
    assert summary["step_metrics"]["last_loss"] is not None


class _Counting(TorchFunctionMode):
    """Counts what it is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[str] = Counter()

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.seen[getattr(func, "__name__", str(func))] += 1
        return func(*args, **(kwargs or {}))


class _Own(torch.Tensor):
    """Likewise."""

    seen: Counter[str] = Counter()

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        cls.seen[getattr(func, "__name__", str(func))] += 1
        return super().__torch_function__(func, types, args, kwargs or {})


def _asked(*, own: bool) -> dict[str, int]:
    """What the program's mode, or its subclass, is asked for in a few steps."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    mode = _Counting()
    _Own.seen.clear()
    with contextlib.nullcontext() if own else mode:
        for _ in range(4):
            optimizer.zero_grad()
            batch = torch.ones(3, 4)
            model(batch.as_subclass(_Own) if own else batch).square().mean().backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    return dict(_Own.seen if own else mode.seen)


@pytest.mark.parametrize("own", [False, True], ids=["a mode", "a subclass"])
def test_what_is_read_is_not_asked_of_the_programs_own_torch_function(tmp_path: Path, own: bool) -> None:
    bare = _asked(own=own)
    with armed(tmp_path, trace="layer", profile="deferred"):
        observed = _asked(own=own)
    assert observed == bare
    assert Left(tmp_path).summary["tensors_read"] > 0
