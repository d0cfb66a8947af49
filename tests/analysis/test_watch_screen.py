"""A snapshot fits every terminal, with what matters first, and nothing in it moves the cursor."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from aorta_collectors.analysis.snapshot import BadTensor, Cell, Largest, Magnitudes, Point, Progress, Rank, Snapshot
from aorta_collectors.analysis.watch import Watch
from aorta_collectors.report.watch import screen
from aorta_collectors.report.watch_lines import Changes
from aorta_collectors.report.watch_words import duration
from aorta_collectors.report.wording import number

HOSTILE = "\x1b[2J\r\n<b>[red]层" * 40


def rank(number: int, **changed: object) -> Rank:
    fields = {"state": "running", "ended_by": None, "steps": 120, "behind": 0, "silent_s": 0.1, "is_slow": False}
    more = {"first_bad_step": None, "write_error": None, "host": "h", "pid": 7}
    return Rank(**{"rank": number, "files": f"rank{number}", **fields, **more, **changed})  # type: ignore[arg-type]


def full(name: str = HOSTILE, ranks: int = 300) -> Snapshot:
    """Everything at once."""
    tensor = {"module_path": name, "direction": "fwd", "role": "act", "param_name": "", "tensor_path": "[0]"}
    bad = {"step": 13, "layer": name, "module_path": name, "direction": "fwd", "role": "act", "kind": "inf", "rank": 3}
    origin = {"step": 14, "rank": 3, "stage": "forward", "module": name, "reason": "its inputs were clean"}
    processes = tuple(rank(number, behind=9 * (number % 2), is_slow=number % 3 == 0) for number in range(ranks))
    return Snapshot(
        "2026-11-30T08:00:00+00:00",
        "out",
        "running",
        cell=name,
        trial="0",
        cells=tuple(Cell(f"{name}{number}", "0", "ended", "captured", False, bad) for number in range(200)),
        progress=Progress(processes, ranks, 2, 0, 120, 0.01, 5.0, 0.02, 50, bad, bad | {"step": 14}, origin),
        magnitudes=Magnitudes(
            tuple(Largest(tensor, 120, 3, 6e4, 0.1, "torch.float16") for _ in range(40)),
            tuple(Point(step, None, 1.0, 3.0, "torch.float16") for step in range(200)),
            tuple(BadTensor(tensor, 13, 3, "inf", 20, 5) for _ in range(40)),
            20_000,
            100,
            123_456_789,
            3,
        ),
        problems=(name,) * 50,
    )


def lines(snapshot: Snapshot, width: int, height: int | None = None, *, ascii_only: bool = False) -> list[str]:
    """As rich writes them."""
    console = Console(file=io.StringIO(), width=width, markup=False, emoji=False, highlight=False)
    drawn = console.render_lines(screen(snapshot, width, height, ascii_only=ascii_only))
    return ["".join(segment.text for segment in line).rstrip() for line in drawn]


@functools.cache
def shown(width: int, height: int | None) -> list[str]:
    return lines(full(), width, height)


@settings(deadline=None, max_examples=50)
@given(st.integers(40, 220), st.integers(12, 90), st.booleans())
def test_it_fits(width: int, height: int, ascii_only: bool) -> None:
    found = lines(full("a.b" * 5), width, height, ascii_only=ascii_only)
    assert len(found) <= height
    assert all(line.isprintable() for line in lines(full(), width, height))
    assert not ascii_only or all(line.isascii() for line in found)


@pytest.mark.parametrize(("width", "height"), [(40, 12), (80, 24), (200, 50)])
def test_what_is_bad_and_who_is_behind_is_there_in_every_size(width: int, height: int) -> None:
    text = "\n".join(shown(width, height))
    assert "step 120" in text
    assert "first bad: step 13, rank 3, inf in" in text
    assert "ranks: 300 running" in text


def test_a_large_terminal_is_used() -> None:
    found = shown(200, 50)
    assert len(found) == 50
    for heading in ("near the limit", "bad: 20000 tensors", "trials: 200 of 200", "magnitudes up to step 100"):
        assert any(heading in line for line in found)
    assert any("123.5 MB of records not read" in line for line in found)


def test_one_rank_that_is_well_has_no_line_and_one_that_died_has() -> None:
    well = lines(full("a", 1), 80)
    assert not any(line.startswith("ranks") for line in well)
    snapshot = full("a", 1)
    assert snapshot.progress is not None
    dead = Progress(**{**vars(snapshot.progress), "ranks": (rank(0, state="gone"),), "world_size": 1})
    found = lines(Snapshot(**{**vars(snapshot), "progress": dead}), 80)
    assert "process 7 gone: there is no process 7 on this host" in found


def test_a_terminal_without_letters_for_bars(captured: Callable[[str], Path]) -> None:
    snapshot = Watch(captured("overflow")).look()
    assert all(line.isascii() for line in lines(snapshot, 60, ascii_only=True))


def test_lines_tell_each_thing_once() -> None:
    changes = Changes()
    first = changes.lines(full("a", 2))
    assert sum("first bad: step 13" in line for line in first) == 1
    assert first[-1].startswith(
        "08:00:00 a, trial 0: step 120, 1 min 40 s a step, overhead 2 %, largest 60000 (0.1 bits left)"
    )
    assert changes.lines(full("a", 2)) == []


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.04, "0.0 s"),
        (9.94, "9.9 s"),
        (45.4, "45 s"),
        (59.7, "1 min 0 s"),
        (185.0, "3 min 5 s"),
        (7440.0, "2 h 4 min"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize("width", [40, 60, 100])
def test_numbers_are_whole_in_every_width(captured: Callable[[str], Path], width: int) -> None:
    snapshot = Watch(captured("ranks")).look()
    rows = [line.split() for line in lines(snapshot, width, 60)]
    assert number(snapshot.magnitudes.worst[0].abs_max) in {word for row in rows for word in row}
