"""The memory of two runs at the same points."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aorta_collectors.analysis.bundles import MemoryComparison, compare_memory, memory_runs_of
from tests.analysis.bundles.made import device, memory, point
from tests.analysis.bundles.test_growth import MB, POINTS, RSS, steps


def compared(tmp_path: Path, a: list[dict[str, Any]], b: list[dict[str, Any]]) -> MemoryComparison:
    memory(tmp_path / "a", a)
    memory(tmp_path / "b", b)
    return compare_memory(memory_runs_of(tmp_path / "a"), memory_runs_of(tmp_path / "b"))


def test_growth_in_one_phase_of_the_candidate(tmp_path: Path) -> None:
    """What is not given back in full could be either phase's; beside a baseline it is one's."""
    found = compared(tmp_path, steps([64 * MB, -64 * MB, 0, 0]), steps([66 * MB, -64 * MB, 0, 0]))
    (pair,) = found.pairs
    (rss,) = pair.found
    assert (rss.measure, rss.grows_more) == (RSS, True)
    assert rss.phase is not None
    assert (rss.phase.baseline.name, rss.phase.difference) == ("before_forward -> after_forward", 2 * MB)
    assert rss.lowest.baseline.median == 500 * MB
    assert rss.lowest.candidate.median == 500 * MB + 6 * 2 * MB
    assert pair.points == (48, 0, 0)


@pytest.mark.parametrize(
    ("baseline", "candidate", "expected"),
    [
        # What the baseline borrows, and the candidate does not, is no growth of the phase that gives it back.
        ([64, -64, 0, 0], [2, 0, 0, 0], [0]),
        ([64, -64, 0, 0], [64, -64, 2, 0], [2]),
        # It gives back less than it takes; the baseline tells which phase is as ever.
        ([64, -64, 0, 0], [66, -64, 0, 0], [0]),
        ([64, -64, 0, 0], [64, -62, 0, 0], [1]),
        # Taken in one phase, given back by the baseline alone in another: either may be meant.
        ([2, -2, 0, 0], [2, 0, 0, 0], [0, 1]),
        # Both grow, and the candidate in one more phase.
        ([3, 0, 0, 0], [3, 1, 0, 0], [1]),
        ([0, 0, 0, 0], [0, 0, 0, 4], [3]),
    ],
)
def test_the_phase_of_the_growth_is_told_once(
    tmp_path: Path, baseline: list[int], candidate: list[int], expected: list[int]
) -> None:
    sides = (steps([change * MB for change in side], count=30) for side in (baseline, candidate))
    (pair,) = compared(tmp_path, *sides).pairs
    (rss,) = pair.found
    ends = [*POINTS, f"next {POINTS[0]}"]
    names = [f"{POINTS[index]} -> {ends[index + 1]}" for index in expected]
    assert [each.name for each in rss.growing] == names
    told = rss.to_json()
    assert (told["growing_phases"], told["growing_phase"]) == (names, names[0] if len(names) == 1 else None)


def test_the_same(tmp_path: Path) -> None:
    found = compared(tmp_path, steps([8 * MB, -8 * MB, 0, 0], noise=65536), steps([8 * MB, -8 * MB, 0, 0]))
    assert not found.found


def test_growth_on_both_sides_is_none_of_the_candidates(tmp_path: Path) -> None:
    assert not compared(tmp_path, steps([0, 0, MB, 0]), steps([0, 0, MB, 0])).found
    both = compared(tmp_path, steps([0, 0, MB, 0]), steps([0, 0, 3 * MB, 0]))
    assert both.pairs[0].found[0].grows_more


def test_more_at_each_point(tmp_path: Path) -> None:
    more = [{**each, "host": {**each["host"], "rss": each["host"]["rss"] + 30 * MB}} for each in steps([0, 0, 0, 0])]
    (pair,) = compared(tmp_path, steps([0, 0, 0, 0]), more).pairs
    (rss,) = pair.found
    assert (rss.is_more, rss.grows_more, rss.lowest.difference) == (True, False, 30 * MB)
    (back,) = compare_memory(memory_runs_of(tmp_path / "b"), memory_runs_of(tmp_path / "a")).pairs
    assert back.found == []
    assert next(each for each in back.measures if each.measure == RSS).is_less


def test_capacity_and_devices_of_one_side_alone(tmp_path: Path) -> None:
    def on(devices: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [point(step, name, MB, devices) for step in range(1, 9) for name in POINTS]

    base = device(allocated=10 * MB)
    graphs = device(allocated=10 * MB, private=(64 * MB, 0))
    (pair,) = compared(tmp_path, on([base]), on([graphs, device("cuda:1", allocated=MB)])).pairs
    assert pair.found == []
    assert [str(each.measure) for each in pair.measures if each.is_more] == ["cuda:0 reserved", "cuda:0 inactive"]
    assert list(map(str, pair.only_candidate))[:3] == ["cuda:0 private reserved", "cuda:1 allocated", "cuda:1 active"]


def test_each_rank_by_itself_and_points_of_one_side_alone(tmp_path: Path) -> None:
    for rank, leak in ((0, 0), (1, 2 * MB)):
        memory(tmp_path / "a", steps([0, 0, 0, 0]), rank=rank, ranks=2)
        memory(tmp_path / "b", steps([0, 0, leak, 0], count=10), rank=rank, ranks=2)
    memory(tmp_path / "a", steps([0, 0, 0, 0]), rank=2, ranks=2)
    found = compare_memory(memory_runs_of(tmp_path / "a"), memory_runs_of(tmp_path / "b"))
    assert [(pair.baseline.run.rank, len(pair.found), pair.points) for pair in found.pairs] == [
        (0, 0, (40, 8, 0)),
        (1, 1, (40, 8, 0)),
    ]
    assert found.only_baseline == ("rank 2",)
    told = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert told["found"] is True
    assert told["pairs"][1]["measures"][0]["growing_phase"] == "after_backward -> after_step"
