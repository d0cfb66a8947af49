"""A report without a conclusion about its question says so, and why."""

from __future__ import annotations

from pathlib import Path

from aorta_collectors.cli.printed import printed
from aorta_collectors.investigate.design import Design
from tests.investigate.made import TENSORS, Made, layers
from tests.investigate.test_report import report_of, section

ALONE = {"baseline": "python train.py"}
NONE = "No conclusion about the question could be drawn: "


def told(made: Made) -> str:
    """The first line of what is printed, which the report has as well."""
    first = printed(["investigate", "report", str(made.root)]).text.splitlines()[0]
    text = report_of(made).files["REPORT.md"]
    for title in ("Question", "Tool Gaps"):
        assert NONE in section(text, title)
    return first


class TestWhy:
    def test_a_baseline_alone_is_compared_with_nothing(self, tmp_path: Path) -> None:
        made = Made(tmp_path, commands=ALONE)
        made.run(1, layers(1))
        assert told(made) == f"{NONE}there is no candidate, and the baseline is compared with nothing."

    def test_whether_it_repeats_itself_stands_elsewhere(self, tmp_path: Path) -> None:
        made = Made(tmp_path, commands=ALONE, design=Design.of("values", repetitions=2, observer_effect=False))
        made.all({"baseline": layers(1)})
        assert told(made).endswith("whether it repeats itself stands under Reproduction Status.")

    def test_a_collector_that_tells_something_else(self, tmp_path: Path) -> None:
        design = Design.of("memory", repetitions=1, warm_up=0, observer_effect=False)
        made = Made(tmp_path, kind="memory", collect=TENSORS, design=design)
        made.all({"baseline": layers(1), "candidate": layers(2)})
        # What tensors tell is told nevertheless.
        assert told(made) == f"{NONE}tensors cannot tell what grows; memory does."
        assert any("First divergence" in each.text for each in report_of(made).report.conclusions)

    def test_runs_that_are_missing_and_runs_without_evidence(self, tmp_path: Path) -> None:
        made = Made(tmp_path)
        made.run(1, layers(1))
        assert told(made) == f"{NONE}1 run not begun."
        made.run(2, None, state="failed", exit_code=1, verdict="fail", reason="the program exited with 1")
        assert told(made).startswith(f"{NONE}what the runs left does not suffice;")


def test_an_answer_needs_no_such_sentence(tmp_path: Path) -> None:
    made = Made(tmp_path)
    made.all({"baseline": layers(1), "candidate": layers(1)})
    found = report_of(made)
    assert found.report.unanswered == ""
    assert NONE not in found.files["REPORT.md"]
