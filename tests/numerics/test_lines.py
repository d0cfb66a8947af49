"""Files of lines that get full: fewer steps are written, and what is left out is counted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from aorta_collectors.numerics.lines import Lines
from aorta_collectors.observe.files import RecordFile
from tests.numerics.left import Left
from tests.numerics.test_session import armed, losses


def fill(lines: Lines, steps: range, special: frozenset[int] = frozenset()) -> None:
    for step in steps:
        lines.append([(step, [step, index]) for index in range(2)], json.dumps, special.__contains__)


def written(path: Path) -> Iterator[list[int]]:
    return map(json.loads, path.read_text().splitlines())


def test_the_fuller_it_is_the_fewer_steps_are_written(tmp_path: Path) -> None:
    said: list[str] = []
    lines = Lines("spans", RecordFile(tmp_path / "lines"), said.append, most=200)
    special = frozenset((777, 4999))
    fill(lines, range(1, 9_001), special)
    found = list(written(tmp_path / "lines"))
    steps = list(dict.fromkeys(step for step, _ in found))
    assert found == [[step, index] for step in steps for index in range(2)], "whole steps"
    assert steps[:51] == list(range(1, 52))
    assert [step for step in steps if 51 < step <= 290] == list(range(60, 300, 10))
    assert special < set(steps)
    rest = [step for step in steps if step > 400 and step not in special]
    assert all(step % 100 == 0 for step in rest)
    assert rest[-3:] == [7000, 8000, 9000]
    assert len(found) <= 200
    assert (lines.file.written, lines.dropped) == (len(found), 18_000 - len(found))
    (warning,) = said
    assert warning.startswith("there are 102 lines of spans: from step 52 on, those of every 10th step are written")


def test_it_is_never_fuller_than_it_may_be_but_for_the_last_line(tmp_path: Path) -> None:
    lines = Lines("spans", RecordFile(tmp_path / "lines"), lambda message: None, most=5)
    fill(lines, range(1, 20), frozenset(range(20)))
    lines.add_last("[20, 0]")
    assert list(written(tmp_path / "lines")) == [[1, 0], [1, 1], [2, 0], [2, 1], [3, 0], [20, 0]]
    assert lines.dropped == 2 * 19 - 5


def test_one_that_does_not_thin_is_full_when_it_is_full(tmp_path: Path) -> None:
    lines = Lines("escalations", RecordFile(tmp_path / "lines"), pytest.fail, thins=False, most=5)
    fill(lines, range(1, 20))
    assert [step for step, _ in written(tmp_path / "lines")] == [1, 1, 2, 2, 3]


def test_of_steps_that_are_sampled_one_in_so_many_is_written(tmp_path: Path) -> None:
    said: list[str] = []
    lines = Lines("stats", RecordFile(tmp_path / "lines"), said.append, most=200, apart=7)
    fill(lines, range(1, 7 * 200, 7))
    steps = [step for step, _ in written(tmp_path / "lines")][::2]
    assert steps[:51] == list(range(1, 7 * 51, 7))
    assert steps[51:54] == [421, 491, 561]
    assert "those of every 70th step are written" in said[0]


def test_a_long_run_is_told_of_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lines.__init__, "__kwdefaults__", {"thins": True, "apart": 1, "most": 200})
    with armed(tmp_path, trace="layer", stats_every=1):
        losses(130)
    left = Left(tmp_path)
    summary = left.summary
    spans = left.lines("spans")
    assert spans[-1]["kind"] == "process"
    known = {span["span_id"] for span in spans}
    assert all(span["parent_span_id"] in known for span in spans[:-1])
    for kind, last in (("spans", 100), ("stats", 100), ("steps", 130)):
        lines = left.lines(kind)
        assert max(line["step"] for line in lines) >= last
        assert summary["files"][kind]["dropped"] > 0
    assert summary["files"]["steps"]["written"] + summary["files"]["steps"]["dropped"] == 130
    assert len([warning for warning in summary["warnings"] if "from step" in warning]) == 3
