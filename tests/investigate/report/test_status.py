"""What number and order of the runs allow to say, gaps of compiled code, and where a report stands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aorta_collectors.cli.printed import printed
from aorta_collectors.investigate.described import design_text
from aorta_collectors.investigate.design import Design
from tests.investigate.made import MEMORY, Made, Write, layers, memory
from tests.investigate.support import OURS, investigate
from tests.investigate.test_report import report_of, section
from tests.support import run

ALONE = {"baseline": "python train.py"}


class TestSupports:
    @pytest.mark.parametrize(("commands", "what"), [({}, "One matched pair is enough"), (ALONE, "One run is enough")])
    def test_of_one_repetition(self, tmp_path: Path, commands: dict[str, str], what: str) -> None:
        made = Made(tmp_path, **({"commands": commands} if commands else {}))
        made.all({"baseline": layers(1), "candidate": layers(1)})
        text = report_of(made).files["REPORT.md"]
        assert what in section(text, "Design")
        assert "No run was repeated: whether the same comes again is not known" in section(text, "Reproduction Status")

    @pytest.mark.parametrize("repetitions", [1, 2])
    def test_nobody_takes_turns_with_a_single_repetition(self, tmp_path: Path, repetitions: int) -> None:
        design = Design.of("memory", repetitions=repetitions, warm_up=0, observer_effect=False)
        made = Made(tmp_path, kind="memory", collect=MEMORY, design=design)
        made.all({"baseline": memory(0), "candidate": memory(0)})
        text = report_of(made).files["REPORT.md"]
        assert ("taking turns" in design_text(made.investigation.metadata)) == (repetitions > 1)
        assert ("The baseline came first in every repetition" in text) == (repetitions == 1)
        verb = "1 repetition of each is too few" if repetitions == 1 else "2 repetitions of each are too few"
        assert verb in section(text, "Design")

    def test_a_variant_alone_has_no_other_to_take_turns_with(self, tmp_path: Path) -> None:
        design = Design.of("memory", repetitions=6, observer_effect=False)
        made = Made(tmp_path, kind="memory", collect=MEMORY, design=design, commands=ALONE)
        made.all({"baseline": memory(0)})
        text = section(report_of(made).files["REPORT.md"], "Design")
        assert "What counts ran after a warm-up." in text
        assert "6 repetitions of it allow an exact interval" in text
        assert "took turns" not in text


def compiled(*values: float) -> Write:
    """Layers of a model that torch.compile runs, observed inside of it."""

    def write(directory: Path) -> None:
        layers(*values)(directory)
        summary = directory / "summary_rank0.json"
        own = {"compiled_observed": True, "not_seen": [{"layer": "layers.9", "reason": "it is inlined"}]}
        summary.write_text(json.dumps({**json.loads(summary.read_text()), **own}))

    return write


def test_that_code_was_compiled_together_with_what_observes_it_is_a_gap(tmp_path: Path) -> None:
    made = Made(tmp_path)
    made.all({"baseline": layers(1), "candidate": compiled(1)})
    found = report_of(made)
    gaps = section(found.files["REPORT.md"], "Tool Gaps")
    assert "code of torch.compile was compiled together with what observes it" in gaps
    assert "not seen inside of compiled code: layers.9: it is inlined" in gaps
    assert gaps.count("(002-candidate-1)") == 2
    assert found.report.observer.compiled == ("candidate",)


class TestPrinted:
    def test_before_any_run_it_says_how_many_are_missing(self, tmp_path: Path) -> None:
        made = Made(tmp_path)
        assert f"0 of 2 runs made; `aorta-collectors investigate run {made.root}` makes" in _printed(made)
        made.run(1, layers(1))
        assert "1 of 2 runs made" in _printed(made)
        made.run(2, layers(1))
        assert "runs made" not in _printed(made)

    def test_a_reader_that_has_seen_enough_is_no_error(self, tmp_path: Path) -> None:
        made = Made(tmp_path)
        made.all({"baseline": layers(1), "candidate": layers(2)})
        script = f"set -o pipefail; {OURS} investigate report root | head -n 1"
        assert run(["bash", "-c", script], tmp_path).ok().out.startswith("First divergence")
        (made.directory(1) / "stderr.log").write_text("x")
        script = f"{OURS} investigate verify root | head -n 1; echo ${{PIPESTATUS[0]}}"
        assert run(["bash", "-c", script], tmp_path).out.endswith("\n1\n")

    def test_one_run_is_one_run(self, tmp_path: Path) -> None:
        made = Made(tmp_path, commands=ALONE)
        made.run(1, layers(1))
        report_of(made)
        assert investigate(tmp_path, "verify", "root").ok().out == "1 run: all is as it was recorded\n"

    def test_the_report_says_by_what_a_later_change_would_show(self, tmp_path: Path) -> None:
        from aorta_collectors.investigate.journal import read_journal

        made = Made(tmp_path)
        made.all({"baseline": layers(1), "candidate": layers(1)})
        last = read_journal(made.root)[-1].own
        assert f"`{last}`" in section(report_of(made).files["REPORT.md"], "Artifacts")


def _printed(made: Made) -> str:
    return printed(["investigate", "report", str(made.root)]).text
