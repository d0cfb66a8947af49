"""Conclusions about durations: intervals of paired runs, and a tool that slows one variant."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from aorta_collectors.investigate.design import Design
from aorta_collectors.investigate.report.conclusion import Standing
from aorta_collectors.investigate.report.writing import Rendered
from tests.investigate.made import Made, layers
from tests.investigate.test_report import report_of, said, section


class TestNumbers:
    def times(
        self, tmp_path: Path, durations: Sequence[tuple[float, float]], *, steps: bool = False, **design: Any
    ) -> Rendered:
        """Durations of pairs of runs, the baseline's first."""
        shape = {"repetitions": len(durations), "warm_up": 1, "observer_effect": False, **design}
        made = Made(tmp_path, kind="timing", collect="numerics", design=Design.of("timing", **shape))
        for entry in made.schedule:
            pair = durations[entry["repetition"] - 1]
            seconds = 99.0 if entry["warm_up"] else pair[entry["variant"] == "candidate"]
            metrics = {"numerics_step_ms_p50": seconds * 100, "numerics_steps": 2} if steps else {}
            made.run(entry["number"], duration_s=seconds, state="completed", reason="", metrics=metrics)
        return report_of(made)

    def test_the_step_is_told_before_the_run(self, tmp_path: Path) -> None:
        found = self.times(tmp_path, [(2 + index / 10, 2.5 + index / 10) for index in range(6)], steps=True)
        step, whole = found.report.conclusions
        assert (
            "With the tool, a step of the baseline takes 225 ms (200 ms to 250 ms, 96.9%) and a step of the"
            in step.text
        )
        assert "differences, pair by pair: 50 ms (50 ms to 50 ms, 96.9%)" in step.text
        assert step.standing is Standing.EFFECT
        assert "the baseline takes 2.25 s" in whole.text
        assert whole.text.endswith(
            "Steps, as timed with the tool, are 20% of the baseline's (2 steps) and 20% of the candidate's (2 steps): "
            "the rest is start-up, compiling and the like."
        )

    def test_six_counterbalanced_pairs_support_a_claim(self, tmp_path: Path) -> None:
        found = self.times(tmp_path, [(2 + index / 10, 2.5 + index / 10) for index in range(6)])
        (conclusion,) = found.report.conclusions
        assert conclusion.standing is Standing.EFFECT
        assert "the baseline takes 2.25 s (2 s to 2.5 s, 96.9%) and the candidate 2.75 s" in conclusion.text
        assert "differences, pair by pair: 0.5 s (0.5 s to 0.5 s, 96.9%)" in conclusion.text
        assert "99" not in conclusion.text
        assert "allow an exact interval" in found.files["REPORT.md"]

    def test_the_baseline_always_first_shows_a_correlation(self, tmp_path: Path) -> None:
        found = self.times(tmp_path, [(2, 3)] * 6, order="pair")
        assert [each.standing for each in found.report.conclusions] == [Standing.CORRELATION]
        assert "The baseline came first in every repetition" in found.files["REPORT.md"]

    def test_too_few_pairs_are_listed_and_support_nothing(self, tmp_path: Path) -> None:
        found = self.times(tmp_path, [(2, 3)] * 4)
        (conclusion,) = found.report.conclusions
        assert conclusion.standing is Standing.OPEN
        assert "1 s (of 1 s, 1 s, 1 s, 1 s)" in conclusion.text
        assert "4 repetitions of each are too few for an interval" in found.files["REPORT.md"]

    def test_a_difference_of_either_sign_is_none(self, tmp_path: Path) -> None:
        found = self.times(tmp_path, [(2, 2.1), (2.1, 2)] * 3)
        assert [each.standing for each in found.report.conclusions] == [Standing.OPEN]
        assert "slower in 3 of 6 and faster in 3" in said(found.report)


class TestObserver:
    def made(self, tmp_path: Path, slowed_s: float, repetitions: int, stdout: str = "done\n") -> Rendered:
        """The tool adds 0.1 s to the baseline, and `slowed_s` to the candidate."""
        design = Design.of("timing", repetitions=repetitions, warm_up=0)
        made = Made(tmp_path, kind="timing", collect="numerics", design=design)
        for entry in made.schedule:
            added = slowed_s if entry["variant"] == "candidate" else 0.1
            seconds = 2 + entry["repetition"] / 100 + (added if entry["tool"] else 0)
            printed = stdout if entry["tool"] else "done\n"
            made.run(entry["number"], duration_s=seconds, stdout=printed, state="completed", reason="")
        return report_of(made)

    @pytest.mark.parametrize("repetitions", [1, 4, 6])
    def test_a_tool_that_slows_one_variant_is_named(self, tmp_path: Path, repetitions: int) -> None:
        found = self.made(tmp_path, 3.0, repetitions)
        effect = found.report.observer
        assert (effect.differs, effect.slowed, effect.is_certain) == (True, "candidate", repetitions >= 6)
        text = section(found.files["REPORT.md"], "Inference")
        assert "The tool slows the candidate more: the baseline goes from" in text
        assert "this comparison does not hold" in text
        with_tool = [each for each in found.report.conclusions if each.text.startswith("With the tool")]
        assert all(each.standing is not Standing.EFFECT for each in with_tool)

    def test_a_tool_that_treats_both_alike_is_not(self, tmp_path: Path) -> None:
        found = self.made(tmp_path, 0.11, 6, stdout="other\n")
        assert found.report.observer.differs is False
        design = section(found.files["REPORT.md"], "Design")
        assert "the tool adds 0.1 s (0.1 s to 0.1 s, 96.9%)" in design
        assert "the same exit code in 6 and the same stdout in 0 of 6 repetitions" in design

    def test_it_says_where_it_was_not_measured(self, tmp_path: Path) -> None:
        made = Made(tmp_path)
        made.all({"baseline": layers(1), "candidate": layers(1)})
        text = report_of(made).files["REPORT.md"]
        assert "Not measured. That the tool changes nothing is not shown." in section(text, "Design")
        assert "The effect of the tool itself was not measured." in section(text, "Tool Gaps")
