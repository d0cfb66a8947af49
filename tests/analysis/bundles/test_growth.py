"""Memory over the steps of one run: what grows, by how much, and in which phase."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from aorta_collectors.analysis.bundles import Growth, growth, memory_runs_of
from aorta_collectors.analysis.bundles.memory_run import Measure
from aorta_collectors.errors import ArtifactError
from tests.analysis.bundles.made import device, grown, memory, point

MB = 1 << 20
POINTS = ("before_forward", "after_forward", "after_backward", "after_step")
RSS = Measure("host", "rss")


def steps(phases: Sequence[int], count: int = 12, noise: int = 0, first: int = 0) -> list[dict[str, Any]]:
    """Steps whose four phases, the last one up to the next step's begin, change the resident set by so many bytes.

    Args:
        first: Bytes that the first step takes besides, once for all.
    """
    drawn, rss, points = random.Random(3), 500 * MB, []
    for step in range(1, count + 1):
        for name, change in zip(POINTS, phases, strict=True):
            points.append(point(step, name, rss + drawn.randrange(noise + 1)))
            rss += change
        rss += first if step == 1 else 0
    return points


def grown_of(path: Path, **options: Any) -> Growth:
    (run,) = memory_runs_of(path)
    return growth(run, **options)


class TestWhatGrows:
    def test_absolute_numbers_and_the_phase(self, tmp_path: Path) -> None:
        found = grown_of(memory(tmp_path, steps([0, 0, 3 * MB, 0], noise=64 << 10)))
        (rss,) = found.growing
        assert rss.measure == RSS, "anonymous says the same, and stands behind it"
        assert [phase.name for phase in rss.growing] == ["after_backward -> after_step"]
        assert rss.certain
        lowest = rss.lowest
        assert (lowest.first_step, lowest.last_step) == (2, 12)
        assert lowest.first == pytest.approx(503 * MB, abs=MB)
        assert lowest.change == pytest.approx(30 * MB, abs=MB)
        assert lowest.trend is not None
        assert lowest.trend.low is not None
        assert 2.9 * MB < lowest.trend.low <= lowest.trend.slope <= 3.1 * MB

    def test_what_a_step_borrows_hides_it_from_nobody(self, tmp_path: Path) -> None:
        found = grown_of(memory(tmp_path, steps([64 * MB, -64 * MB, 2 * MB, 0])))
        (rss,) = found.growing
        assert ([phase.name for phase in rss.growing], rss.certain) == (["after_backward -> after_step"], False)
        assert [phase.median for phase in rss.phases] == [64 * MB, -64 * MB, 2 * MB, 0]
        assert rss.phases[0].before == pytest.approx(502 * MB + 5 * 2 * MB, abs=2 * MB)

    def test_between_steps(self, tmp_path: Path) -> None:
        (rss,) = grown_of(memory(tmp_path, steps([0, 0, 0, 4 * MB]))).growing
        assert [phase.name for phase in rss.growing] == ["after_step -> next before_forward"]

    def test_what_is_not_given_back_in_full_cannot_be_told_to_one_phase(self, tmp_path: Path) -> None:
        (rss,) = grown_of(memory(tmp_path, steps([66 * MB, -64 * MB, 0, 0]))).growing
        assert [phase.name for phase in rss.growing] == [
            "before_forward -> after_forward",
            "after_forward -> after_backward",
        ]
        assert not rss.certain

    def test_what_the_first_step_takes_is_no_growth(self, tmp_path: Path) -> None:
        found = grown_of(memory(tmp_path, steps([8 * MB, -8 * MB, 0, 0], noise=64 << 10, first=100 * MB)))
        assert found.growing == []

    @pytest.mark.parametrize("filled_by", [4, 11])
    def test_what_is_filled_once_grows_no_more(self, tmp_path: Path, filled_by: int) -> None:
        rising = [2 * min(step, filled_by) * MB for step in range(1, 21)]
        points = [point(step, name, 500 * MB + rise) for step, rise in enumerate(rising, 1) for name in POINTS]
        found = grown_of(memory(tmp_path, points))
        assert (found.growing, [each.measure for each in found.measures if each.grows]) == ([], [])
        assert [each.measure for each in found.stopped] == ([RSS] if filled_by == 11 else [])

    def test_what_the_later_half_adds_has_to_count_too(self, tmp_path: Path) -> None:
        # As a process that was just started: most in the first steps, then ever less.
        rises = [0, 0, 3072, 3584, 4096, 4100, 4150, 4200, 4300, 4400]
        points = [point(step, name, 389 * MB + (rise << 10)) for step, rise in enumerate(rises, 1) for name in POINTS]
        found = grown_of(memory(tmp_path, points))
        assert ([each.measure for each in found.growing], [each.measure for each in found.stopped]) == ([], [RSS])
        assert found.stopped[0].later_change == 300 << 10
        assert [each.measure for each in grown_of(tmp_path, least_bytes=100 << 10).growing] == [RSS]

    def test_what_grows_by_leaps_goes_on(self, tmp_path: Path) -> None:
        points = [point(step, name, 500 * MB + step // 4 * 8 * MB) for step in range(1, 31) for name in POINTS]
        found = grown_of(memory(tmp_path, points))
        assert ([each.measure for each in found.growing], found.stopped) == ([RSS], [])

    def test_noise_is_no_growth(self, tmp_path: Path) -> None:
        assert grown_of(memory(tmp_path, steps([0, 0, 0, 0], noise=4 * MB))).growing == []

    def test_little_is_growth_only_where_it_is_asked_for(self, tmp_path: Path) -> None:
        memory(tmp_path, steps([0, 0, 8192, 0]))
        assert grown_of(tmp_path).growing == []
        assert [each.measure for each in grown_of(tmp_path, least_bytes=1).growing] == [RSS]

    def test_few_steps_show_no_trend(self, tmp_path: Path) -> None:
        found = grown_of(memory(tmp_path, steps([0, 0, 3 * MB, 0], count=3)))
        assert found.growing == []
        assert found.measures[0].lowest.change == 3 * MB

    def test_a_single_step(self, tmp_path: Path) -> None:
        found = grown_of(memory(tmp_path, steps([1, 2, 3, 4], count=1)))
        assert [phase.total for phase in found.measures[0].phases] == [1, 2, 3]

    def test_points_that_come_several_times_in_a_step(self, tmp_path: Path) -> None:
        points = [point(step, "after_forward:l", step * MB + at) for step in (1, 2, 3) for at in (0, 5)]
        found = grown_of(memory(tmp_path, points))
        assert [str(each.place) for each in found.measures[0].points] == ["after_forward:l", "after_forward:l #2"]

    def test_points_before_the_first_step_are_in_no_phase(self, tmp_path: Path) -> None:
        points = [point(0, "user:loaded", MB), *steps([0, 0, 0, 0], count=3)]
        assert len(grown_of(memory(tmp_path, points)).measures[0].phases) == 4


class TestDevices:
    def test_a_private_pool_that_grows_is_retained_capacity(self, tmp_path: Path) -> None:
        points = [
            point(step, name, 500 * MB, [device(allocated=100 * MB, private=(step * 8 * MB, 4 * MB))])
            for step in range(1, 10)
            for name in POINTS
        ]
        found = grown_of(memory(tmp_path, points))
        assert found.growing == []
        capacity = [str(each.measure) for each in found.measures if each.grows]
        assert capacity == ["cuda:0 reserved", "cuda:0 inactive", "cuda:0 private reserved"]
        (at_the_end,) = found.to_json()["devices"]
        assert (at_the_end["private_reserved"], at_the_end["private_retained"]) == (72 * MB, 68 * MB)

    def test_what_is_allocated_and_grows(self, tmp_path: Path) -> None:
        points = [
            point(step, name, 500 * MB, [device(allocated=100 * MB + step * 2 * MB), device("cuda:1", allocated=MB)])
            for step in range(1, 10)
            for name in POINTS
        ]
        found = grown_of(memory(tmp_path, points))
        assert [str(each.measure) for each in found.growing] == ["cuda:0 allocated"]
        assert [phase.name for phase in found.growing[0].growing] == ["after_step -> next before_forward"]


class TestReading:
    def test_stacks_by_phase_the_largest_first(self, tmp_path: Path) -> None:
        lines = [grown(step, "after_backward", "after_step", 3 * MB) for step in (1, 2, 3)]
        lines += [grown(step, "before_forward", "after_forward", 4 * MB, "cache.py", 3) for step in (2, 3)]
        found = grown_of(memory(tmp_path, steps([0, 0, 0, 0], count=3), growth=lines))
        assert [(each.bytes, each.steps, each.frames[0], each.begins) for each in found.stacks] == [
            (8 * MB, 2, ("cache.py", 3, None), "before_forward"),
            (6 * MB, 2, ("train.py", 7, None), "after_backward"),
        ]

    def test_a_record_that_had_given_way_is_noted(self, tmp_path: Path) -> None:
        line = {**grown(2, "after_backward", "after_step", MB), "complete": False}
        found = grown_of(memory(tmp_path, steps([0, 0, 0, 0], count=3), growth=[line]))
        assert any("had given way" in note for note in found.notes)

    def test_a_killed_process_is_noted(self, tmp_path: Path) -> None:
        found = grown_of(memory(tmp_path, steps([0, 0, 0, 0], count=3), status="running", ended_by=None))
        assert found.notes == ("the process was killed, or still runs: the last of what it saw may be missing",)

    def test_no_point_at_all(self, tmp_path: Path) -> None:
        memory(tmp_path, [])
        with pytest.raises(ArtifactError, match="memory was looked at nowhere"):
            grown_of(tmp_path)

    def test_json_is_plain(self, tmp_path: Path) -> None:
        found = grown_of(memory(tmp_path, steps([0, 0, 3 * MB, 0]), growth=[grown(2, "a", "b", MB)]))
        told = json.loads(json.dumps(found.to_json(), allow_nan=False))
        assert told["growing"] == ["host rss"]
        assert told["measures"][0]["growing_phases"] == ["after_backward -> after_step"]
        assert (told["steps"], told["counted_steps"]) == (12, 11)
