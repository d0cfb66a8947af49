"""The observer effect: named only where the tool itself slows something, and not where a run was slow by chance."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aorta_collectors.investigate.files import Run
from aorta_collectors.investigate.report.observer import conclude_observer, describe_outputs, observer_effect
from aorta_collectors.investigate.report.observer_blocks import observer_blocks

VARIANTS = ("baseline", "candidate")


def runs(durations: Sequence[tuple[float, float, float, float]], **fields: Any) -> list[Run]:
    """Of each repetition: the baseline without the tool and with it, then the candidate."""
    found = []
    for repetition, of in enumerate(durations, 1):
        for index, seconds in enumerate(of):
            record = {
                "variant": VARIANTS[index // 2],
                "repetition": repetition,
                "tool": bool(index % 2),
                "warm_up": False,
                "state": "completed",
                "duration_s": seconds,
                "exit_code": 0,
                "sha256": {"stdout.log": "x"},
                "number": 4 * repetition + index,
                "started_at": f"2026-11-29T10:{repetition:02d}:{10 * index:02d}+00:00",
                "ended_at": f"2026-11-29T10:{repetition:02d}:{10 * index + 5:02d}+00:00",
                **fields,
            }
            found.append(Run(Path(f"/runs/{VARIANTS[index // 2]}-{repetition}-{index % 2}"), record))
    return found


def text_of(
    durations: Sequence[tuple[float, float, float, float]], compiled: Sequence[str] = (), kind: str = "timing"
) -> str:
    return said(runs(durations), compiled, kind)


def said(these: Sequence[Run], compiled: Sequence[str] = (), kind: str = "timing") -> str:
    effect = observer_effect(these, VARIANTS, compiled, kind=kind)
    return " ".join(each.text for each in conclude_observer(effect))


def blocks_of(durations: Sequence[tuple[float, float, float, float]]) -> str:
    return repr(list(observer_blocks(observer_effect(runs(durations), VARIANTS, kind="timing"))))


SECONDS = st.floats(1, 3)


class TestSlowed:
    def test_a_run_without_the_tool_that_was_slow_by_chance_slows_nobody(self) -> None:
        assert text_of([(2.069, 2.095, 2.94, 2.124)]) == ""
        assert text_of([(2.069, 2.095, 29.4, 2.124)]) == ""

    @pytest.mark.parametrize("repetitions", [1, 2, 5, 6, 9])
    @given(slow=st.floats(0.1, 30))
    def test_however_slow_it_was_and_however_often(self, repetitions: int, slow: float) -> None:
        assert text_of([(2.0, 2.02, 2.0 + slow, 2.02)] * repetitions) == ""

    @given(st.lists(st.tuples(SECONDS, SECONDS, SECONDS, SECONDS), min_size=1, max_size=9))
    def test_what_is_named_is_slowed_itself(self, durations: list[tuple[float, float, float, float]]) -> None:
        effect = observer_effect(runs(durations), VARIANTS, kind="timing")
        if effect.differs:
            (named,) = (each for each in effect.variants if each.variant == effect.slowed)
            assert named.durations.differences.median is not None
            assert named.durations.differences.median > 0

    def test_a_single_pair_takes_as_much_as_the_run_itself(self) -> None:
        assert text_of([(2.0, 2.1, 2.0, 3.9)]) == ""
        assert "The tool slows the candidate more" in text_of([(2.0, 2.1, 2.0, 4.3)])

    @pytest.mark.parametrize("kind", ["values", "finite"])
    def test_where_time_is_not_asked_for_a_single_pair_is_a_table_alone(self, kind: str) -> None:
        assert text_of([(2.0, 2.1, 2.0, 40.0)], kind=kind) == ""
        assert text_of([(2.0, 2.1, 2.0, 40.0)] * 2, kind=kind) != ""
        effect = observer_effect(runs([(2.0, 2.1, 2.0, 40.0)]), VARIANTS, kind=kind)
        assert "cannot be told" in repr(list(observer_blocks(effect)))

    @pytest.mark.parametrize("change", [{"number": 99}, {"ended_at": "2026-11-29T09:00:00+00:00"}, {"ended_at": None}])
    def test_nothing_from_a_pair_of_runs_that_were_not_made_one_after_the_other(self, change: dict[str, Any]) -> None:
        found = runs([(2.0, 2.1, 2.0, 40.0)])
        assert said(found) != ""
        found[2].record.update(change)  # type: ignore[attr-defined]
        assert said(found) == ""

    def test_of_a_compiled_variant_a_cache_may_be_the_reason(self) -> None:
        told = text_of([(2.0, 2.1, 14.8, 37.0)], ("candidate",))
        assert told.endswith(
            "The candidate runs code of torch.compile: of two such runs, one may have compiled what the other found in "
            "a cache."
        )


class TestWords:
    def test_of_runs_that_were_ended_no_exit_code_is_the_same(self) -> None:
        effect = observer_effect(runs([(2, 2, 2, 2)], exit_code=None, state="failed"), VARIANTS, kind="timing")
        assert describe_outputs(effect.variants[0]).startswith("an exit code in none and the same stdout in 1 of 1")

    def test_a_tool_that_adds_less_than_nothing_shows_how_runs_differ_by_themselves(self) -> None:
        blocks = blocks_of([(3.0, 2.0, 3.0, 3.5)])
        assert "the difference is -1 s, of one pair, which does not rule out chance" in blocks
        assert "the difference is 0.5 s, of one pair" in blocks
        assert "adds" not in blocks
        blocks = blocks_of([(3.0, 2.0, 3.0, 3.5)] * 2)
        assert "what the tool adds is not shown: -1 s (of -1 s, -1 s)" in blocks
        assert "the tool adds 0.5 s (of 0.5 s, 0.5 s) (+17% of the duration without it)" in blocks

    def test_an_interval_that_holds_0_shows_nothing_and_one_that_does_not_shows_which(self) -> None:
        blocks = blocks_of([(3.0, 2.0, 3.0, 2.9), (3.0, 3.5, 3.0, 2.8)] * 3)
        assert "what the tool adds is not shown: -0.25 s (-1 s to 0.5 s, 96.9%)" in blocks
        assert "with the tool runs were shorter, by 0.15 s (0.1 s to 0.2 s, 96.9%)" in blocks
        assert "tool adds -" not in blocks

    def test_a_median_difference_of_another_sign_than_that_of_the_medians_says_so(self) -> None:
        blocks = blocks_of([(1.0, 1.1, 1, 2), (2.0, 1.0, 1, 2), (2.5, 2.6, 1, 2)])
        assert (
            "0.1 s (of 0.1 s, -1 s, 0.1 s); that is the median of the differences, and not the difference of the"
            in blocks
        )
