"""The live view of numerics fits every terminal, with what matters first, and nothing in it moves the cursor."""

from __future__ import annotations

import functools
import io
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from aorta_collectors.analysis.snapshot import Cell
from aorta_collectors.analysis.top_snapshot import Look, Span, Top, TopBrick, TopStep, Training
from aorta_collectors.report.top import SORTS, screen
from tests.analysis.test_watch_screen import HOSTILE
from tests.analysis.test_watch_screen import full as watched

LOSSES = tuple((step, 4.0 / step) for step in range(1, 400))


def training(**changed: Any) -> Training:
    fields: dict[str, Any] = {"step": 120, "kind": "training", "loss": 1.25, "loss_ema": 1.5, "smoothing": 0.9}
    fields |= {"best_loss": 1.0, "best_loss_step": 110, "tokens_per_s": 12_345.0, "samples_per_s": 100.0, "mfu": 0.123}
    fields |= {"grad_norm": 2.5, "step_ms": 26.5, "memory_used_mb": 519.0, "memory_total_mb": 25_300.0, "eta_s": 185.0}
    return Training(**{**fields, "curve": LOSSES, "ema_curve": LOSSES, **changed})


def full(name: str = HOSTILE, ranks: int = 300, bricks: int = 2000) -> Top:
    """Everything at once."""
    snapshot = watched(name, ranks)
    return Top(
        snapshot.at,
        "out",
        "running",
        cell=name,
        trial="0",
        cells=(Cell("a", "0", "ended", "captured", False), Cell("b", "0", "running")),
        progress=snapshot.progress,
        profile="deferred",
        training=training(),
        span=Span("spans", 12, 9.5),
        bricks=tuple(
            TopBrick(
                f"{name}.{i}", "Linear", "forward", 12, 1e6 / (i + 1), 0.5 / (i + 1), i + 1.0, i / 9, 0.1, "memory", 1
            )
            for i in range(bricks)
        ),
        steps=tuple(TopStep(f"{name}{index}", "forward", 12, 100.0, 0.1) for index in range(30)),
        efficiency=0.34,
        looks=tuple(Look(7, 3, name, "forward", "unstable", 0.4, 0.15, 700.0, "futex", "strace") for _ in range(40)),
        looks_taken=123,
        looks_suppressed=5,
        stopped={"step": 120, "layer": name, "causes": [{"kind": "parameters", "evidence": name}]},
        passed_over_bytes=123_456_789,
        problems=(name,) * 50,
    )


def lines(top: Top, width: int, height: int | None = None, **how: Any) -> list[str]:
    """As rich writes them."""
    console = Console(file=io.StringIO(), width=width, markup=False, emoji=False, highlight=False)
    drawn = console.render_lines(screen(top, width, height, **how))
    return ["".join(segment.text for segment in line).rstrip() for line in drawn]


@functools.cache
def shown(width: int, height: int | None) -> str:
    return "\n".join(lines(full("a.b"), width, height))


@settings(deadline=None, max_examples=30)
@given(st.integers(40, 220), st.integers(24, 90), st.booleans())
def test_it_fits(width: int, height: int, ascii_only: bool) -> None:
    found = lines(full("a.b" * 5, bricks=60), width, height, ascii_only=ascii_only)
    assert len(found) <= height
    assert all(line.isprintable() for line in lines(full(bricks=60), width, height))
    assert not ascii_only or all(line.isascii() for line in found)


@pytest.mark.parametrize(("width", "height"), [(40, 24), (80, 24), (110, 50)])
def test_what_matters_is_there_in_every_size(width: int, height: int) -> None:
    text = " ".join(shown(width, height).split())
    for wanted in (
        "step 120",
        "12.3 k tokens/s",
        "MFU 12.3%",
        "ETA 3 min 5 s",
        "loss 1.25, EMA(0.9) 1.5",
        "ranks: 300 running",
        "a.b.0 fwd 50.0%",
    ):
        assert wanted in text
    assert "stopped at step 120, a.b" in text


def test_a_large_terminal_has_a_chart_and_all_columns() -> None:
    text = shown(110, 60)
    assert "┌──" in text
    assert "bound" in text
    assert "escalations: 123, 5 not taken (rate_limit)" in text
    assert "step 7 rank 3 a.b fwd: CV 0.4, mostly futex" in text
    assert "123.5 MB of lines not read" in text
    assert "trials: 1 of 2 ended, 1 failed" in text


@pytest.mark.parametrize("sort", SORTS)
def test_bricks_are_sorted(sort: str) -> None:
    found = [line.split() for line in lines(full("a", 1, bricks=30), 100, None, sort=sort)]
    names = [int(words[0][2:]) for words in found if words and words[0].startswith("a.") and words[0][2:].isdecimal()]
    as_text = sorted(range(30), key=lambda index: f"a.{index}")[:10]
    assert names == {"mean": list(range(29, 19, -1)), "CV": list(range(29, 19, -1)), "name": as_text}.get(
        sort, list(range(10))
    )


def test_a_loss_that_is_no_number_is_said() -> None:
    found = lines(replace(full("a", 1), training=training(loss="nan")), 80)
    assert any(line.startswith("loss nan, EMA(0.9) 1.5, best 1 in step 110") for line in found)


def test_inference_has_no_loss() -> None:
    bare = training(kind="inference", loss=None, loss_ema=None, best_loss=None, curve=(), ema_curve=())
    found = lines(replace(full("a", 1), training=bare), 80)
    assert not any("loss" in line for line in found)


def test_where_modules_are_not_timed_it_says_so() -> None:
    found = lines(replace(full("a", 1), bricks=(), profile="off"), 80)
    assert "no bricks: profile is off" in found
