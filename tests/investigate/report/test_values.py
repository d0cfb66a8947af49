"""Conclusions about tensors: of runs that failed too, with the files that the elements are from."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest
import torch

from aorta_collectors.analysis.bundles.criterion import BITWISE, Criterion
from aorta_collectors.investigate.design import Design
from aorta_collectors.investigate.existing import open_existing
from aorta_collectors.investigate.report.conclusion import Standing
from tests.analysis.bundles import made as bundles
from tests.investigate.made import Made, Write, layers
from tests.investigate.test_report import rendered_root, report_of, said, section


def of_dtypes(*dtypes: torch.dtype, value: float = 1.5) -> Write:
    """Layers that return the same numbers in several dtypes."""

    def write(directory: Path) -> None:
        layers(*(value for _ in dtypes))(directory)
        values = [torch.full((2, 3), value, dtype=dtype) for dtype in dtypes]
        made = [bundles.tensor(f"layers.{index}", value, keep=True) for index, value in enumerate(values)]
        own = json.loads((directory / "summary_rank0.json").read_text())
        own["values"]["bytes"] = sum(value.numel() * value.element_size() for value in values)
        bundles.tensors(directory, made, **{key: own[key] for key in _KEPT})

    return write


_KEPT = ("run_id", "config", "tensors_observed", "lines_written", "points", "tensors_nonfinite", "values")


class TestFailures:
    def crashed(self, tmp_path: Path, *values: float) -> Made:
        """Two repetitions of which each candidate crashes after having left some tensors."""
        made = Made(tmp_path, design=Design.of("values", repetitions=2, observer_effect=False))
        for entry in made.schedule:
            if entry["variant"] == "baseline":
                made.run(entry["number"], layers(1, 2, 3))
            else:
                fields = {"state": "failed", "exit_code": 1, "reason": "the program exited with 1"}
                made.run(entry["number"], layers(*values), **fields)
        return made

    def test_that_runs_failed_is_said_and_what_they_left_is_compared(self, tmp_path: Path) -> None:
        report = report_of(self.crashed(tmp_path, 1, math.nan)).report
        first, second, *_ = report.conclusions
        assert first.text == (
            "The candidate failed in 2 of 2 repetitions (002-candidate-1, 004-candidate-2): the program exited with 1. "
            "What is said of it is of what it left until then; how it would have gone on is not known."
        )
        assert {path.name for path in first.artifacts} == {"run.json", "stderr.log"}
        assert second.text.startswith("First divergence: after_forward:layers.1.output, invocation 0 (step 1): NaN in")
        assert "at element [0, 0] the baseline has 2 and the candidate nan; 6 of 6 elements" in second.text
        assert " Of 002-candidate-1, which failed, what was left until then is compared." in second.text
        assert "There are 1 observation missing in the candidate. Seen in 2 of 2 pairs." in second.text

    def test_what_matches_until_then_is_no_answer(self, tmp_path: Path) -> None:
        report = report_of(self.crashed(tmp_path, 1, 2)).report
        (conclusion,) = [each for each in report.conclusions if "002-candidate-1, which failed" in each.text]
        assert conclusion.standing is Standing.OPEN
        assert "no proof that there is none: of 3 observations, 2 matched, 1 missing on one side" in conclusion.text

    def test_a_program_that_ended_well_and_lacks_evidence_ended_well(self, tmp_path: Path) -> None:
        made = Made(tmp_path)
        made.run(1, layers(1, 2))
        made.run(2, layers(1, 3), state="failed", verdict="error", reason="no evidence of tensors: this lacks")
        first, second, *_ = report_of(made).report.conclusions
        assert first.text.endswith(
            "this lacks. Its program came to its end; what is missing is evidence, and is told under Tool Gaps."
        )
        assert "First divergence" in second.text
        assert "until then" not in f"{first.text} {second.text}"

    def test_what_was_there_before_ended_by_an_exception(self, tmp_path: Path) -> None:
        for name, own in (("a", {"ended_by": "exit"}), ("b", {"ended_by": "ValueError: no", "steps_seen": 3})):
            layers(1)(tmp_path / name)
            summary = tmp_path / name / "summary_rank0.json"
            summary.write_text(json.dumps({**json.loads(summary.read_text()), **own}))
        sides = {"baseline": tmp_path / "a", "candidate": tmp_path / "b"}
        found = rendered_root(open_existing(tmp_path / "root", "a", "b", "values", sides))
        first, second, *_ = found.report.conclusions
        assert first.text.startswith(
            "The candidate's program ended by ValueError: no, in step 3. What is said of it is"
        )
        assert second.text.startswith("No divergence at the points observed: 1 observation matches, 1 of them bit for")
        gaps = section(found.files["REPORT.md"], "Tool Gaps")
        assert "the process ended by ValueError: no, in step 3 (candidate)" in gaps
        assert gaps.count("ValueError") == 1
        matrix = section(found.files["REPORT.md"], "Run Matrix")
        assert "| candidate | rank0 | tensors | complete | ValueError: no | 3 |" in matrix
        assert "| baseline | rank0 | tensors | complete | exit |" in matrix

    def test_a_failed_run_without_the_tool_is_told_apart(self, tmp_path: Path) -> None:
        made = Made(tmp_path, design=Design.of("values"))
        for entry in made.schedule:
            failed = {} if entry["tool"] else {"state": "failed", "reason": "the program exited with 1"}
            made.run(entry["number"], layers(1) if entry["tool"] else None, **failed)
        told = said(report_of(made).report)
        assert "The baseline without the tool failed in 1 of 1 repetition (002-baseline-1-bare): the program" in told
        assert "The candidate without the tool failed in 1 of 1 repetition" in told
        assert "The baseline failed" not in told

    def test_nothing_is_said_where_none_failed(self, tmp_path: Path) -> None:
        made = Made(tmp_path)
        made.all({"baseline": layers(1), "candidate": layers(1)})
        assert "failed" not in said(report_of(made).report)


class TestCited:
    def test_the_values_of_both_sides_of_a_divergence(self, tmp_path: Path) -> None:
        made = Made(tmp_path, design=Design.of("values", repetitions=2, observer_effect=False))
        made.all({"baseline": layers(1, 2), "candidate": layers(1, 3)})
        (conclusion,) = report_of(made).report.conclusions
        values = [path for path in conclusion.artifacts if path.name == "values_rank0_step1.safetensors"]
        assert [path.relative_to(made.root / "runs").parts[0] for path in values] == [
            made.directory(number).name for number in range(1, 5)
        ]

    def test_no_values_where_none_were_kept_and_none_where_nothing_differs(self, tmp_path: Path) -> None:
        made = Made(tmp_path)
        made.all({"baseline": layers(1, 2, keep=False), "candidate": layers(1, 3, keep=False)})
        (conclusion,) = report_of(made).report.conclusions
        assert not [path for path in conclusion.artifacts if path.suffix == ".safetensors"]


class TestDtypes:
    def test_where_the_dtype_changes_there_it_is_said_once(self, tmp_path: Path) -> None:
        made = Made(tmp_path)
        made.all({"baseline": of_dtypes(torch.float32), "candidate": of_dtypes(torch.bfloat16)})
        (conclusion,) = report_of(made, Criterion(BITWISE)).report.conclusions
        assert "dtypes differ: float32, bfloat16" in conclusion.text
        assert "the dtype differs at" not in conclusion.text

    @pytest.mark.parametrize("value", [1.5, 1.25])
    def test_dtypes_and_autocast_stand_in_the_conclusion_whether_values_agree_or_not(
        self, tmp_path: Path, value: float
    ) -> None:
        def of(dtype: torch.dtype, autocast: str | None, value: float = 1.5) -> Write:
            def write(directory: Path) -> None:
                of_dtypes(torch.float32, dtype, value=value)(directory)
                summary = directory / "summary_rank0.json"
                content = json.loads(summary.read_text())
                content["environment"] = {"settings": {"autocast": {"cpu": autocast, "cuda": None}}}
                summary.write_text(json.dumps(content))

            return write

        made = Made(tmp_path)
        made.all({"baseline": of(torch.float32, None), "candidate": of(torch.bfloat16, "bfloat16", value)})
        (conclusion,) = report_of(made).report.conclusions
        assert ("First divergence" in conclusion.text) is (value != 1.5)
        assert "float32 and bfloat16" in conclusion.text
        assert "of another dtype in the candidate" in conclusion.text
        assert re.search("[Aa]utocast on cpu is off in the baseline and bfloat16 in the candidate", conclusion.text)
        assert "cuda" not in conclusion.text

    def test_steps_are_those_of_one_dtype_where_there_are_two(self, tmp_path: Path) -> None:
        made = Made(tmp_path)
        made.all({"baseline": of_dtypes(torch.float32), "candidate": of_dtypes(torch.bfloat16, value=1.25)})
        (conclusion,) = report_of(made, Criterion(BITWISE)).report.conclusions
        assert re.search(r"which are 0\.25 apart \(relative 0\.1667, \d+ ulp of bfloat16\)", conclusion.text)

    def test_a_revision_without_changes_has_no_digest_of_them(self, tmp_path: Path) -> None:
        from aorta_collectors.investigate.files import write_metadata

        made = Made(tmp_path)
        revisions = {
            "/clean": {"commit": "abc", "branch": None, "changed": False, "diff_sha256": None},
            "/dirty": {"commit": "abc", "branch": "main", "changed": True, "diff_sha256": "f00"},
        }
        write_metadata(made.root, {**made.investigation.metadata, "revisions": revisions})
        text = section(report_of(made).files["REPORT.md"], "Environment")
        assert "commit abc, branch none, changed false |" in text
        assert "changed true, diff_sha256 f00 |" in text
