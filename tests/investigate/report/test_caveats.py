"""What a report says before its conclusions: a criterion chosen after the runs, and changes between them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aorta_collectors.analysis.bundles.criterion import BITWISE, Criterion
from aorta_collectors.cli.printed import printed
from aorta_collectors.investigate.design import Design
from aorta_collectors.investigate.files import write_metadata
from aorta_collectors.investigate.report.conclusion import Standing
from tests.investigate.made import Made, layers
from tests.investigate.support import investigate
from tests.investigate.test_report import report_of, section
from tests.investigate.verify.support import faults

CHOSEN = "When tensors count as the same was chosen for this report, after the runs: rtol 1, atol 10"


class TestCriterion:
    @pytest.fixture
    def bitwise(self, tmp_path: Path) -> Made:
        """Declared bit for bit, of two runs that differ by little."""
        made = Made(tmp_path, agreement=Criterion(BITWISE))
        made.all({"baseline": layers(1, 2), "candidate": layers(1, 2.0000002)})
        return made

    def test_the_declared_one_decides_without_a_word(self, bitwise: Made, tmp_path: Path) -> None:
        out = investigate(tmp_path, "report", "root").ok().out
        assert out.startswith("First divergence: after_forward:layers.1.output")
        assert "bit for bit" in out
        assert "after the runs" not in (bitwise.root / "REPORT.md").read_text()
        assert faults(bitwise.root) == []

    def test_another_one_is_told_wherever_somebody_looks(self, bitwise: Made) -> None:
        words = ["investigate", "report", str(bitwise.root), "--rtol", "1", "--atol", "10"]
        first, second, *_ = printed(words).text.splitlines()
        assert first.startswith(CHOSEN)
        assert first.endswith("; declared was: bit for bit.")
        assert second.startswith("No divergence")
        text = (bitwise.root / "REPORT.md").read_text()
        for title in ("Question", "Design", "Tool Gaps"):
            assert CHOSEN in section(text, title)
        assert faults(bitwise.root) == []
        assert json.loads(printed([*words, "--json"]).text)["caveats"] == [first]

    def test_where_none_was_declared_that_is_said(self, bitwise: Made) -> None:
        metadata = dict(bitwise.investigation.metadata)
        del metadata["agreement"]
        write_metadata(bitwise.root, metadata)
        assert report_of(bitwise).report.caveats == ()
        (caveat,) = report_of(bitwise, Criterion(BITWISE)).report.caveats
        assert caveat.endswith("after the runs: bit for bit; none was declared.")


class TestChanges:
    def made(self, tmp_path: Path, before_run: int, what: str | None = None) -> Made:
        """Three pairs; something changed before one of the runs."""
        made = Made(tmp_path, design=Design.of("values", repetitions=3, observer_effect=False))
        file = f"{tmp_path / 'train.py'}: sha256:00 before, sha256:11 now"
        change = {"at": "2026-11-29T10:00:30+00:00", "before_run": before_run, "what": [what or file]}
        write_metadata(made.root, {**made.investigation.metadata, "changes": [change]})
        made.all({"baseline": layers(1, 2), "candidate": layers(1, 3)})
        return made

    @pytest.mark.parametrize("before_run", [2, 3, 6])
    def test_conclusions_over_a_change_are_open_questions(self, tmp_path: Path, before_run: int) -> None:
        made = self.made(tmp_path, before_run)
        found = report_of(made)
        (conclusion,) = found.report.conclusions
        assert conclusion.standing is Standing.CHANGED
        names = [entry["name"] for entry in made.schedule]
        told = f"train.py changed between {names[before_run - 2]} and {names[before_run - 1]} (--allow-changes)"
        (caveat,) = found.report.caveats
        assert caveat.startswith(told)
        text = found.files["REPORT.md"]
        assert told in section(text, "Question").partition("First divergence")[0]
        assert told in section(text, "Tool Gaps")
        assert "**Standing:** an open question" in section(text, "Inference")
        out = printed(["investigate", "report", str(made.root)]).text
        assert out.startswith(told)
        assert out.splitlines()[1].startswith("First divergence")

    @pytest.mark.parametrize("before_run", [1, 7])
    def test_a_change_that_parts_no_runs_weakens_nothing(self, tmp_path: Path, before_run: int) -> None:
        report = report_of(self.made(tmp_path, before_run)).report
        assert report.caveats == ()
        assert [each.standing for each in report.conclusions] == [Standing.OBSERVED]

    def test_what_is_no_file_of_a_command_is_told_as_it_was_recorded(self, tmp_path: Path) -> None:
        (caveat,) = report_of(self.made(tmp_path, 3, "torch version: 2.12 before, 2.13 now")).report.caveats
        assert caveat.startswith("Something (torch version: 2.12 before, 2.13 now) changed between 002-candidate-1 and")

    def test_a_conclusion_of_runs_from_one_side_keeps_its_standing(self, tmp_path: Path) -> None:
        """The first pair parts elsewhere, and was made before the change."""
        made = Made(tmp_path, design=Design.of("values", repetitions=2, observer_effect=False))
        change = {"at": "2026-11-29T10:00:30+00:00", "before_run": 3, "what": ["torch version: 1 before, 2 now"]}
        write_metadata(made.root, {**made.investigation.metadata, "changes": [change]})
        for number, values in enumerate([(1, 2), (1, 3), (1, 2), (2, 2)], 1):
            made.run(number, layers(*values))
        report = report_of(made).report
        assert len(report.caveats) == 1
        assert [each.standing for each in report.conclusions] == [Standing.OBSERVED, Standing.OBSERVED]
