"""A live view of numerics: a window over spans, the course of the loss, what is shown during a run and after it."""

from __future__ import annotations

import json
import math
import os
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aorta_collectors.analysis.top import LiveProfile
from aorta_collectors.analysis.top_losses import Curve, Losses
from aorta_collectors.analysis.top_window import WINDOW_S, Window
from tests.numerics.synthetic import Line, brick, escalation, span, stat, step_line, write

PROFILE = {"profile": "deferred"}
RUNNING = {"status": "running", "ended_by": None, "host": "elsewhere"}


def nested(steps: int, inner_us: Sequence[float], step_us: float = 1000.0) -> list[Line]:
    """Steps with a block and a part of it: the part takes `inner_us` in turn, the block 100 microseconds more."""
    found: list[Line] = []
    for step in range(1, steps + 1):
        at, inside = (step - 1) * step_us, inner_us[(step - 1) % len(inner_us)]
        number = 10 * step
        of_step: dict[str, Any] = {"step": step, "start_us": at, "direction": "forward"}
        found.append(span("Linear", "brick", number, parent=number + 1, layer="h.0.mlp", duration_us=inside, **of_step))
        block: dict[str, Any] = {"layer": "h.0", "duration_us": inside + 100, **of_step}
        found.append(span("TRANSFORMER_BLOCK", "phase", number + 1, parent=number + 2, **block))
        found.append(span("STEP", "step", number + 2, step=step, start_us=at, duration_us=step_us))
    return found


def test_a_window_has_what_the_last_seconds_took() -> None:
    window = Window()
    window.take("rank0", nested(30, [300.0, 500.0], step_us=1e6))
    found = window.sums()
    assert found.steps == {"rank0": WINDOW_S}
    inner, block = found.modules["h.0.mlp", "forward"], found.modules["h.0", "forward"]
    assert (inner.calls, inner.mean_us, inner.own_ns) == (10, 400.0, 4_000_000)
    assert (block.mean_us, block.own_ns) == (500.0, 1_000_000)
    assert inner.cv == pytest.approx(math.sqrt(10 / 9) * 100 / 400)
    assert list(found.named) == [("TRANSFORMER_BLOCK", "forward")]


def test_a_step_longer_than_the_window_is_in_it_as_a_whole() -> None:
    window = Window()
    lines = nested(2, [3e7], step_us=4e7)
    window.take("rank0", lines[:4])  # the second step goes on
    assert window.sums().steps == {"rank0": 1}
    window.take("rank0", lines[4:])
    assert window.sums().modules["h.0.mlp", "forward"].mean_us == 3e7


def test_how_lines_arrive_makes_no_difference() -> None:
    lines = nested(8, [100.0, 200.0, 400.0])
    together, apart = Window(), Window()
    together.take("rank0", lines)
    for line in lines:
        apart.take("rank0", [line])
    for key, sums in together.sums().modules.items():
        other = apart.sums().modules[key]
        assert (sums.calls, sums.own_ns, sums.squares) == (other.calls, other.own_ns, other.squares)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=300))
def test_losses_are_smoothed_as_said(values: list[float]) -> None:
    losses = Losses()
    for step, loss in enumerate(values, start=1):
        losses.take(step_line(step, loss=loss))
    expected = values[0]
    for loss in values[1:]:
        expected = 0.9 * expected + 0.1 * loss
    assert losses.ema == pytest.approx(expected)
    assert (losses.best, losses.best_step) == (min(values), values.index(min(values)) + 1)
    assert losses.curve.points == tuple(enumerate(values, start=1))


def test_what_is_no_loss_of_training_is_passed_over() -> None:
    losses = Losses()
    for line in (
        step_line(1, loss=2.0),
        step_line(2, loss=0.1, kind="evaluation"),
        step_line(3, loss=None),
        step_line(4, loss="nan"),
    ):
        losses.take(line)
    assert (losses.last, losses.ema, losses.best, len(losses.curve.points)) == ("nan", 2.0, 2.0, 1)


@given(st.integers(1, 20_000))
def test_a_curve_stays_short_and_keeps_its_last_value(count: int) -> None:
    curve = Curve()
    for step in range(count):
        curve.add(step, float(step))
    points = curve.points
    assert len(points) <= 1000
    assert points[-1][0] == count - 1
    assert points[-1][1] == pytest.approx(count - 1, abs=count / 250 + 1)
    assert [step for step, _ in points] == sorted({step for step, _ in points})


def test_bricks_of_a_run_that_goes_on_are_those_of_its_last_seconds(tmp_path: Path) -> None:
    known = [brick("h.0.mlp", efficiency=0.5), brick("h.0", efficiency=None, escalations=3)]
    running = nested(30, [300.0], step_us=1e6)
    out = write(tmp_path / "out", steps=30, config=PROFILE, bricks=known, spans=running, summary=RUNNING)
    top = LiveProfile(out).look()
    assert (top.state, top.profile) == ("running", "deferred")
    assert top.span is not None
    assert (top.span.source, top.span.steps, top.span.seconds) == ("spans", WINDOW_S, 10.0)
    first, second = top.bricks
    # The summary's brick takes 450 us a call without its parts, and half of that is allowed.
    assert (first.layer, first.mean_us) == ("h.0.mlp", 300.0)
    assert first.share == pytest.approx(3e-4)
    assert first.efficiency == pytest.approx(225 / 300)
    assert (second.layer, second.escalations, second.efficiency) == ("h.0", 3, None)
    assert top.efficiency == 0.5


def test_what_is_added_is_seen_at_the_next_look(tmp_path: Path) -> None:
    lines = nested(30, [300.0, 900.0], step_us=2e7)
    more: dict[str, Any] = {"config": PROFILE, "summary": RUNNING}
    out = write(tmp_path / "out", steps=1, spans=lines[:3], **more)
    seen = LiveProfile(out)
    assert seen.look().bricks[0].mean_us == 300.0
    with (out / "spans_rank0.jsonl").open("a") as stream:
        written = [json.loads(line) for line in (out / "spans_rank0.jsonl").read_text().splitlines()]
        for line in lines[3:6]:
            stream.write(json.dumps({**written[0], **line}) + "\n")
    assert seen.look().bricks[0].mean_us == 900.0


def test_a_run_that_has_ended_is_shown_as_a_whole(tmp_path: Path) -> None:
    out = write(tmp_path / "out", ranks=2, config=PROFILE, escalations=[escalation("h.0.attn", step=2)])
    top = LiveProfile(out).look()
    assert top.state == "ended"
    assert top.span is not None
    assert (top.span.source, top.span.steps) == ("summary", 4)
    assert top.bricks[0].layer in ("h.0.attn", "h.1.attn")
    assert top.training is not None
    # Both ranks' throughput, and the loss of one.
    assert (top.training.tokens_per_s, top.training.loss, top.training.best_loss_step) == (12_800.0, 0.25, 4)
    assert {(look.rank, look.layer, look.dominant) for look in top.looks} == {
        (0, "h.0.attn", "futex"),
        (1, "h.0.attn", "futex"),
    }
    assert top.looks_taken == 2


def test_of_a_process_that_is_gone_the_last_seconds_stay(tmp_path: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    here = {"status": "running", "host": socket.gethostname(), "pid": gone.pid}
    out = write(tmp_path / "out", steps=30, config=PROFILE, bricks=[], spans=nested(30, [300.0], 1e6), summary=here)
    os.utime(out / "summary_rank0.json", (1e9, 1e9))
    top = LiveProfile(out).look()
    assert top.progress is not None
    assert (top.state, top.progress.ranks[0].state) == ("ended", "gone")
    assert top.bricks[0].layer == "h.0.mlp"


@pytest.mark.parametrize("config", [{}, {**PROFILE, "steps": ["attn"]}])
def test_without_a_span_for_each_module_the_summary_is_asked(tmp_path: Path, config: dict[str, Any]) -> None:
    top = LiveProfile(write(tmp_path / "out", config=config, summary=RUNNING)).look()
    assert top.span is not None
    assert top.span.source == "summary"
    assert bool(top.bricks) == bool(config)
    assert {step.name for step in top.steps} == {"EMBED", "TRANSFORMER_BLOCK", "LM_HEAD"}


def test_where_it_stopped(tmp_path: Path) -> None:
    stopped = {"layer": "h.1.mlp", "step": 4, "direction": "forward", "kind": "nan", "causes": []}
    stats = [stat(4, "h.1.mlp", nan_count=2)]
    top = LiveProfile(
        write(tmp_path / "out", config={"trace": "layer"}, stats=stats, summary={"stopped": stopped})
    ).look()
    assert top.stopped == stopped
    assert top.progress is not None
    assert top.progress.first_bad is not None
    assert (top.progress.first_bad["kind"], top.progress.first_bad["layer"]) == ("nan", "h.1.mlp")


def test_it_waits_for_what_is_not_there(tmp_path: Path) -> None:
    seen = LiveProfile(tmp_path / "out")
    assert (seen.look().state, seen.look().bricks) == ("waiting", ())
    write(tmp_path / "out", config=PROFILE)
    assert seen.look().state == "ended"
