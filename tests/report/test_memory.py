"""Memory as a person reads of it: absolute numbers first, in terminals of any width."""

from __future__ import annotations

from pathlib import Path

import pytest

from aorta_collectors.analysis.bundles import compare_memory, growth, memory_runs_of
from aorta_collectors.report import memory, memory_compare
from aorta_collectors.report.memory_words import change, size
from tests.analysis.bundles import made
from tests.analysis.bundles.test_growth import MB, POINTS, steps
from tests.report.test_tensors import console, text_of


@pytest.mark.parametrize(
    ("count", "expected"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.50 KiB"), (-3 << 20, "-3.00 MiB"), (250 << 30, "250 GiB"), (None, "-")],
)
def test_sizes(count: int | None, expected: str) -> None:
    assert size(count) == expected
    assert change(count) == (f"+{expected}" if count and count > 0 else expected)


@pytest.mark.parametrize("width", [40, 80, 140])
def test_every_report_keeps_to_the_width(tmp_path: Path, width: int) -> None:
    lines = [made.grown(step, "after_backward", "after_step", 3 * MB, "\x1b[2Jtrain.py") for step in (2, 3)]
    made.memory(tmp_path / "a", steps([8 * MB, -8 * MB, 0, 0]))
    made.memory(tmp_path / "b", steps([8 * MB, -8 * MB, 3 * MB, 0]), growth=lines, history={"host": "recorded"})
    a, b = (memory_runs_of(tmp_path / side) for side in "ab")
    drawn = console(width)
    memory.render([growth(run) for run in (*a, *b)], drawn, most=2, every=True)
    memory_compare.render(compare_memory(a, b), drawn, "run:a", "run:b", most=2, every=True)
    text = text_of(drawn)
    assert "\x1b[2J" not in text
    assert max(map(len, text.splitlines())) <= width


def test_a_private_pool_is_told_as_retained_capacity(tmp_path: Path) -> None:
    device = made.device(allocated=100 * MB, private=(64 * MB, 8 * MB))
    points = [made.point(step, name, MB, [device]) for step in range(1, 8) for name in POINTS]
    made.memory(tmp_path, points)
    (run,) = memory_runs_of(tmp_path)
    drawn = console(140)
    memory.render([growth(run)], drawn)
    assert "private pools hold 64.0 MiB, of which 8.00 MiB are in use:" in text_of(drawn)
    assert "56.0 MiB of capacity are retained for replays, which is no leak by itself" in text_of(drawn)
    assert "Nothing in use grows by 1.00 MiB or more." in text_of(drawn)


def test_absolute_numbers_stand_before_changes(tmp_path: Path) -> None:
    made.memory(tmp_path, steps([0, 0, 3 * MB, 0]))
    (run,) = memory_runs_of(tmp_path)
    drawn = console(140)
    memory.render([growth(run)], drawn)
    text = text_of(drawn)
    assert "host rss grows: at before_forward from 503 MiB in step 2 to 533 MiB in step 12, +30.0 MiB" in text
    assert (
        "+3.00 MiB (+3.00 MiB to +3.00 MiB) a step; in after_backward -> after_step; the others change little." in text
    )
    header = next(line for line in text.splitlines() if line.startswith("point"))
    assert header.split()[:3] == ["point", "step", "1"]
    assert header.rstrip().endswith("change     a step")


@pytest.mark.parametrize(
    ("baseline", "candidate", "told"),
    [
        (
            [64, -64, 0, 0],
            [2, 0, 0, 0],
            "in before_forward -> after_forward: +2.00 MiB a step on average, against +64.0 MiB in the baseline",
        ),
        (
            [2, -2, 0, 0],
            [2, 0, 0, 0],
            (
                "which of these cannot be told, since one takes what another gives back: before_forward -> "
                "after_forward; after_forward -> after_backward"
            ),
        ),
    ],
)
def test_where_the_candidate_grows_is_said_once(
    tmp_path: Path, baseline: list[int], candidate: list[int], told: str
) -> None:
    for name, side in (("a", baseline), ("b", candidate)):
        made.memory(tmp_path / name, steps([change * MB for change in side]))
    drawn = console(200)
    sides = (memory_runs_of(tmp_path / side) for side in "ab")
    memory_compare.render(compare_memory(*sides), drawn, "a", "b")
    above = text_of(drawn).partition("Medians where")[0]
    assert f"\n  {told}\n" in "\n".join(line.rstrip() for line in above.splitlines())
    assert above.count("->") == told.count("->")


@pytest.mark.parametrize(
    ("phases", "told"),
    [
        ([2, 2, 0, 0], "in several of them: before_forward -> after_forward; after_forward -> after_backward"),
        ([66, -64, 0, 0], "which of these cannot be told, since one takes what another gives back: before_forward -> "),
    ],
)
def test_that_one_gives_back_is_said_only_where_one_does(tmp_path: Path, phases: list[int], told: str) -> None:
    made.memory(tmp_path, steps([change * MB for change in phases]))
    drawn = console(200)
    memory.render([growth(run) for run in memory_runs_of(tmp_path)], drawn)
    assert told in text_of(drawn)
    assert "host rss, by point and step (8 of 12 steps; --json has all)" in text_of(drawn)
    assert "allocations: host: state only (how much there is, and not who took it)" in text_of(drawn)


def test_what_one_side_alone_has_is_told(tmp_path: Path) -> None:
    for name, private in (("a", 0), ("b", 8 * MB)):
        points = [
            made.point(step, name, MB, [made.device(allocated=MB, private=(private * step, 0))])
            for step in range(1, 9)
            for name in POINTS
        ]
        made.memory(tmp_path / name, points)
    drawn = console(200)
    sides = (memory_runs_of(tmp_path / side) for side in "ab")
    memory_compare.render(compare_memory(*sides), drawn, "a", "b")
    assert "only in the candidate: cuda:0 private reserved 40.0 MiB, grows" in text_of(drawn)


@pytest.mark.parametrize(
    ("count", "why"),
    [(4, "3 step(s) count, and it takes 5 to tell growth from chance"), (6, "")],
)
def test_too_few_steps_are_no_proof_that_nothing_grows(tmp_path: Path, count: int, why: str) -> None:
    for side in "ab":
        made.memory(tmp_path / side, steps([0, 0, 0, 0], count=count))
    a, b = (memory_runs_of(tmp_path / side) for side in "ab")
    drawn, compared = console(200), console(200)
    memory.render([growth(run) for run in a], drawn)
    memory_compare.render(compare_memory(a, b), compared, "a", "b")
    assert (f"Whether anything grows cannot be told: {why}." in text_of(drawn)) is bool(why)
    assert ("Nothing in use grows" in text_of(drawn)) is not bool(why)
    assert (f"Whether either grows more cannot be told: {why}." in text_of(compared)) is bool(why)
    assert ("grows no more" in text_of(compared)) is not bool(why)


def test_points_of_the_program_s_own_alone_are_no_steps(tmp_path: Path) -> None:
    made.memory(tmp_path, [made.point(0, "user:here", MB) for _ in range(9)])
    drawn = console(200)
    memory.render([growth(run) for run in memory_runs_of(tmp_path)], drawn)
    assert "Whether anything grows cannot be told: no step of a model was seen." in text_of(drawn)


def test_what_was_filled_once_is_told_as_that(tmp_path: Path) -> None:
    rising = [2 * min(step, 11) * MB for step in range(1, 21)]
    points = [made.point(step, name, 500 * MB + rise) for step, rise in enumerate(rising, 1) for name in POINTS]
    made.memory(tmp_path, points)
    drawn = console(200)
    memory.render([growth(run) for run in memory_runs_of(tmp_path)], drawn)
    assert (
        "host rss has grown from 504 MiB in step 2 to 522 MiB in step 20, by 0 B in the later half of these: mostly "
        "filled once, as a cache is" in text_of(drawn)
    )
    assert "Nothing in use grows any more by 1.00 MiB or more." in text_of(drawn)


@pytest.mark.parametrize(
    ("candidate", "told"),
    [
        (0, "host rss grows in the baseline, and not in the candidate: +3.00 MiB (+3.00 MiB to +3.00 MiB) a step"),
        (3, "host rss grows on both sides: +3.00 MiB (+3.00 MiB to +3.00 MiB) a step, against +3.00 MiB"),
    ],
)
def test_what_grows_in_the_baseline_is_told(tmp_path: Path, candidate: int, told: str) -> None:
    for name, leak in (("a", 3), ("b", candidate)):
        made.memory(tmp_path / name, steps([0, 0, leak * MB, 0]))
    drawn = console(200)
    memory_compare.render(compare_memory(*(memory_runs_of(tmp_path / side) for side in "ab")), drawn, "a", "b")
    assert told in text_of(drawn)
    assert "The candidate holds no more in use than the baseline, and grows no more, by" in text_of(drawn)
