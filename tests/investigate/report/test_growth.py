"""Conclusions about memory: medians over all repetitions with intervals, and no word of the sweep inside."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from aorta_collectors.investigate.design import Design
from aorta_collectors.investigate.existing import open_existing
from aorta_collectors.investigate.report.conclusion import Standing
from aorta_collectors.investigate.report.reading import Report
from tests.investigate.made import MEMORY, MIB, Made, memory
from tests.investigate.test_report import report_of, report_of_root, section


def answered(tmp_path: Path, per_step: Sequence[tuple[float, float]], **asked: Any) -> Report:
    """Of each repetition, the MiB that a step of the baseline and of the candidate keeps."""
    design = Design.of("memory", repetitions=len(per_step), warm_up=0, observer_effect=False)
    made = Made(tmp_path, kind="memory", collect=MEMORY, design=design, **asked)
    for entry in made.schedule:
        of = per_step[entry["repetition"] - 1][entry["variant"] == "candidate"]
        made.run(entry["number"], memory(int(of * MIB)))
    return report_of(made).report


class TestRepetitions:
    def test_six_of_them_have_intervals_and_none_speaks_for_all(self, tmp_path: Path) -> None:
        report = answered(tmp_path, [(0, 8 + index / 10) for index in range(6)])
        (conclusion,) = report.conclusions
        text = conclusion.text
        assert text.startswith("At before_forward, host rss goes from 108 MiB to ")
        assert "(steps 2 to 8, medians of 6 repetitions)" in text
        assert "grows by a median of +8.25 MiB (+8.00 MiB to +8.50 MiB, 96.9%) a step" in text
        assert "the baseline by a median of 0 B (0 B to 0 B, 96.9%)." in text
        assert "in before_forward -> after_forward: +8.25 MiB (+8.00 MiB to +8.50 MiB, 96.9%) a step in the" in text
        assert text.endswith("Seen in 6 of 6 pairs.")
        assert len([path for path in conclusion.artifacts if path.name == "memory_rank0.jsonl"]) == 12

    def test_repetitions_in_which_nothing_grows_count_in_the_median(self, tmp_path: Path) -> None:
        report = answered(tmp_path, [(0, 8), (0, 0), (0, 0), (0, 8), (0, 0), (0, 0)])
        grows, quiet = report.conclusions
        assert "grows by a median of 0 B (0 B to +8.00 MiB, 96.9%) a step" in grows.text
        assert grows.text.endswith("Seen in 2 of 6 pairs.")
        assert quiet.text.startswith("The candidate holds no more in use than the baseline, and grows no more, by")
        assert quiet.text.endswith("Seen in 4 of 6 pairs.")

    def test_of_one_the_fit_over_its_steps_is_told(self, tmp_path: Path) -> None:
        (conclusion,) = answered(tmp_path, [(0, 8)]).conclusions
        assert (
            "grows by +8.00 MiB (+8.00 MiB to +8.00 MiB) a step (95 % interval), the baseline by 0 B" in conclusion.text
        )
        assert "median" not in conclusion.text

    def test_a_variant_alone(self, tmp_path: Path) -> None:
        report = answered(tmp_path, [(index, 0) for index in range(1, 7)], commands={"baseline": "python train.py"})
        (conclusion,) = report.conclusions
        assert (
            "It grows by a median of +3.50 MiB (+1.00 MiB to +6.00 MiB, 96.9%) a step, in before_for" in conclusion.text
        )
        assert conclusion.text.endswith("Seen in 6 of 6 runs.")

    @pytest.mark.parametrize("values", [[(0, 8)], [(0, 0)], [(8, 8)] * 2, [(0, 8)] * 6])
    def test_cells_trials_and_a_lone_rank_are_not_named(
        self, tmp_path: Path, values: list[tuple[float, float]]
    ) -> None:
        report = answered(tmp_path, values)
        assert report.conclusions
        assert not re.search(r"none-none|trial|rank|repetition 1", " ".join(each.text for each in report.conclusions))

    def test_of_too_few_steps_nothing_is_said_of_growth(self, tmp_path: Path) -> None:
        for commands in (None, {"baseline": "python train.py"}):
            (tmp_path / str(commands)).mkdir()
            design = Design.of("memory", repetitions=1, warm_up=0, observer_effect=False)
            asked = {"commands": commands} if commands else {}
            made = Made(tmp_path / str(commands), kind="memory", collect=MEMORY, design=design, **asked)
            made.all({"baseline": memory(0, steps=2), "candidate": memory(0, steps=2)})
            (conclusion,) = report_of(made).report.conclusions
            assert conclusion.standing is Standing.OPEN
            assert "cannot be told: 1 step(s) count, and it takes" in conclusion.text
            assert "grows no more" not in conclusion.text
            assert "Nothing in use grows" not in conclusion.text

    def test_what_both_do_alike_is_no_difference_and_is_told(self, tmp_path: Path) -> None:
        (conclusion,) = answered(tmp_path, [(8, 8)]).conclusions
        assert conclusion.text.endswith("The baseline itself grows, in host rss.")


def test_ranks_are_told_apart(tmp_path: Path) -> None:
    for side, per_step in (("a", (0, 0)), ("b", (0, 8 * MIB))):
        for rank, of_rank in enumerate(per_step):
            folder = tmp_path / "made" / f"{side}{rank}"
            memory(of_rank)(folder)
            (tmp_path / side).mkdir(exist_ok=True)
            for path in folder.iterdir():
                content = (
                    path.read_text()
                    .replace('"rank": 0', f'"rank": {rank}')
                    .replace('"world_size": 1', '"world_size": 2')
                )
                (tmp_path / side / path.name.replace("rank0", f"rank{rank}")).write_text(content)
    sides = {"baseline": tmp_path / "a", "candidate": tmp_path / "b"}
    report = report_of_root(open_existing(tmp_path / "root", "Which?", "none", "memory", sides))
    texts = [each.text for each in report.conclusions]
    assert any(text.startswith("Rank 0: The candidate holds no more") for text in texts)
    assert any(text.startswith("Rank 1: At before_forward, host rss goes from") for text in texts)


def test_files_without_a_line_are_not_cited_and_nobody_asked_for_finite_values(tmp_path: Path) -> None:
    design = Design.of("memory", repetitions=1, warm_up=0, observer_effect=False)
    made = Made(tmp_path, kind="memory", collect=MEMORY, design=design)

    def write(directory: Path) -> None:
        memory(0)(directory)
        assert (directory / "growth_rank0.jsonl").exists() or (directory / "growth_rank0.jsonl").touch() is None

    made.all({"baseline": write, "candidate": write})
    found = report_of(made)
    assert not [path for path in found.report.cited if path.name.startswith("growth_")]
    gaps = section(found.files["REPORT.md"], "Tool Gaps")
    assert "nobody looked" not in gaps
    assert "allocations recorded (in all runs with the tool)." in gaps
