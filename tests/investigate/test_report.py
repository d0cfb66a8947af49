"""`investigate report`: what was seen beside the criterion, evidence verbatim, each conclusion with its artifacts."""

from __future__ import annotations

import hashlib
import json
import math
import re
from pathlib import Path

import pytest

from aorta_collectors.analysis.bundles.criterion import BITWISE, Criterion
from aorta_collectors.cli.printed import printed
from aorta_collectors.investigate.design import Design
from aorta_collectors.investigate.files import Investigation
from aorta_collectors.investigate.report.conclusion import Standing
from aorta_collectors.investigate.report.reading import Report
from aorta_collectors.investigate.report.writing import Rendered, rendered, write_report
from tests.investigate.made import MEMORY, MIB, TENSORS, Made, layers, memory
from tests.investigate.support import OURS, investigate
from tests.support import run

#: A NaN in the second of two steps.
NAN = """
import torch
from torch import nn

model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
for step in range(2):
    model(torch.full((2, 4), float("nan") if step else 1.0)).sum().backward()
"""
SEEDS = {"baseline": "python train.py --seed {seed}"}


def report_of(made: Made, criterion: Criterion = Criterion()) -> Rendered:  # noqa: B008  (a frozen value)
    found = rendered(made.investigation, criterion, printed, lambda done, total: None)
    write_report(found)
    return found


def rendered_root(investigation: Investigation) -> Rendered:
    found = rendered(investigation, Criterion(), printed, lambda done, total: None)
    write_report(found)
    return found


def report_of_root(investigation: Investigation) -> Report:
    return rendered_root(investigation).report


def said(report: Report) -> str:
    return "\n".join(conclusion.text for conclusion in report.conclusions)


def section(text: str, title: str) -> str:
    return text.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


class TestValues:
    def test_the_first_divergence_with_how_many_pairs_have_it(self, tmp_path: Path) -> None:
        made = Made(tmp_path, design=Design.of("values", repetitions=3, observer_effect=False))
        made.all({"baseline": layers(1, 2, 3), "candidate": layers(1, 2.5, 4)})
        (conclusion,) = report_of(made).report.conclusions
        assert conclusion.text.startswith("First divergence: after_forward:layers.1.output, invocation 0 (step 1)")
        assert "at element [0, 0] the baseline has 2 and the candidate 2.5, which are 0.5 apart" in conclusion.text
        assert conclusion.text.endswith(
            "and the last one is after_forward:layers.0.output, invocation 0 (step 1). Seen in 3 of 3 pairs."
        )
        assert conclusion.standing is Standing.OBSERVED

    def test_no_divergence_is_said_of_the_points_observed_alone(self, tmp_path: Path) -> None:
        made = Made(tmp_path)
        made.all({"baseline": layers(1, 2), "candidate": layers(1, 2)})
        rendered_report = report_of(made, Criterion(BITWISE))
        assert said(rendered_report.report) == (
            "No divergence at the points observed: 2 observations match, 2 of them bit for bit (criterion: bit for "
            "bit). Seen in 1 of 1 pair."
        )
        assert "whether that meets the criterion is for a person to say" in rendered_report.files["REPORT.md"]
        assert "--bitwise" in rendered_report.report.evidence[0].view.words

    def test_pairs_that_part_at_different_places_are_told_apart(self, tmp_path: Path) -> None:
        made = Made(tmp_path, design=Design.of("values", repetitions=2, observer_effect=False))
        for number, values in enumerate([(1, 2), (1, 3), (1, 2), (2, 2)], 1):
            made.run(number, layers(*values))
        report = report_of(made).report
        assert [re.findall(r"layers\.\d", each.text)[0] for each in report.conclusions] == ["layers.1", "layers.0"]
        assert all("Seen in 1 of 2 pairs" in each.text for each in report.conclusions)
        assert any("do not agree on where" in sentence for sentence in report.reproduction)
        assert any("The variant does not repeat itself" in sentence for sentence in report.reproduction)

    def test_what_cannot_be_decided_is_open_and_a_gap(self, tmp_path: Path) -> None:
        made = Made(tmp_path)
        made.run(1, layers(1, 2, 3, keep=False))
        made.run(2, layers(1, 2.0000001, keep=False))
        report = report_of(made).report
        (conclusion,) = report.conclusions
        assert conclusion.standing is Standing.OPEN
        assert "no proof that there is none" in conclusion.text
        assert any("missing in the candidate" in gap.text for gap in report.gaps)

    def test_the_rank_that_differs_from_the_others(self, tmp_path: Path) -> None:
        collect = "tensors:keep=values,points=after_step"
        made = Made(tmp_path, commands={"baseline": "python train.py"}, collect=collect)

        def write(directory: Path) -> None:
            for rank, value in enumerate((1, 1, 7)):
                layers(1, value, rank=rank, ranks=3, kind="parameter")(directory)

        made.run(1, write)
        report = report_of(made).report
        assert any("--ranks" in each.view.words for each in report.evidence)
        assert said(report).startswith(
            "Ranks 0, 1 and 2 part first at after_step:layers.1.weight, invocation 0 (step 1): rank 2 differs from the "
            "others; at element [0, 0] rank 0 has 1 and rank 2 7, which are 6 apart (relative 6, "
        )


def seeded(tmp_path: Path, repetitions: int) -> Made:
    """A baseline alone, with seeds from 7."""
    design = Design.of("finite", repetitions=repetitions, observer_effect=False)
    return Made(tmp_path, kind="finite", collect=TENSORS, commands=SEEDS, design=design, seed=7)


class TestFinite:
    def test_repetitions_and_seeds_are_counted_and_the_seed_is_no_cause(self, tmp_path: Path) -> None:
        made = seeded(tmp_path, 5)
        for number in range(1, 6):
            made.run(number, layers(1, math.nan if number in (2, 4) else 2))
        report = report_of(made).report
        first, second = report.conclusions
        assert first.text.startswith("NaN or Inf in repetitions 2 and 4 (seeds 8 and 10) of 5 of the baseline.")
        assert "step 1, after_forward:layers.1.output, invocation 0: 6 NaN, 0 Inf" in first.text
        assert second.standing is Standing.CORRELATION
        assert "goes with the seed: seeds 7, 9 and 11 are, 8 and 10 are not." in second.text

    def test_a_run_that_failed_over_a_nan_counts_and_is_told(self, tmp_path: Path) -> None:
        made = seeded(tmp_path, 2)
        made.run(1, layers(1, 2))
        made.run(2, layers(1, math.nan), state="failed", exit_code=1, reason="the program exited with 1")
        rendered_report = report_of(made)
        assert "Counted with these although they failed: 002-baseline-2" in said(rendered_report.report)
        matrix = section(rendered_report.files["REPORT.md"], "Run Matrix")
        assert "| failed | 1 |" in matrix
        assert "the program exited with 1" in matrix
        assert "1 run of 2 did not complete" in rendered_report.files["REPORT.md"]


class TestMemory:
    def test_growth_by_phase_absolute_numbers_first(self, tmp_path: Path) -> None:
        design = Design.of("memory", repetitions=2, warm_up=0, observer_effect=False)
        made = Made(tmp_path, kind="memory", collect=MEMORY, design=design)
        made.all({"baseline": memory(0), "candidate": memory(8 * MIB)})
        report = report_of(made).report
        (conclusion,) = report.conclusions
        text = conclusion.text
        assert text.index("from 108 MiB to 156 MiB in the candidate") < text.index("grows by a median of +8.00 MiB")
        assert (
            "grows by a median of +8.00 MiB (of +8.00 MiB, +8.00 MiB) a step, the baseline by a median of 0 B" in text
        )
        assert "in before_forward -> after_forward: +8.00 MiB (of +8.00 MiB, +8.00 MiB) a step in the candidate" in text
        assert "Seen in 2 of 2 pairs" in text
        assert any("state only" in gap.text for gap in report.gaps)

    def test_a_baseline_alone_is_judged_by_itself(self, tmp_path: Path) -> None:
        design = Design.of("memory", repetitions=1, warm_up=0, observer_effect=False)
        made = Made(tmp_path, kind="memory", collect=MEMORY, design=design, commands={"baseline": "python train.py"})
        made.run(1, memory(4 * MIB))
        report = report_of(made).report
        assert "host rss goes from 104 MiB in step 2 to 128 MiB in step 8" in said(report)
        assert [each.view.words[:2] for each in report.evidence] == [("memory", "show")]


@pytest.fixture
def one(tmp_path: Path) -> Made:
    made = Made(tmp_path)
    made.all({"baseline": layers(1, 2), "candidate": layers(1, 3)})
    return made


class TestEvidence:
    def test_it_is_what_the_command_prints_byte_for_byte(self, one: Made, tmp_path: Path) -> None:
        (evidence,) = report_of(one).report.evidence
        ran = run([OURS, *evidence.view.words], tmp_path)
        assert (ran.out, ran.code) == (evidence.printed, evidence.code)
        kept = (one.root / "evidence" / evidence.name).read_text()
        assert kept == f"$ {evidence.view.command}\n\n{ran.out}\nexit code: 3\n"
        assert kept.rstrip() in (one.root / "REPORT.md").read_text()

    def test_colours_that_somebody_asks_for_do_not_get_in(self, one: Made, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("FORCE_COLOR", "1")
        assert "\x1b" not in report_of(one).report.evidence[0].printed

    def test_every_conclusion_names_artifacts_that_are_there_with_their_digests(self, one: Made) -> None:
        found = report_of(one)
        cited = json.loads((one.root / "evidence" / "index.json").read_text())["cited"]
        below = {path: path.relative_to(one.root).as_posix() for path in found.report.cited}
        assert cited == {below[path]: digest for path, digest in found.report.cited.items()}
        for conclusion in found.report.conclusions:
            for path in (*conclusion.artifacts, *(one.root / "evidence" / name for name in conclusion.evidence)):
                assert hashlib.sha256(path.read_bytes()).hexdigest() == cited[below[path]]
                assert f"| [`{path}`](<{path}>) | `{cited[below[path]]}` |" in found.files["REPORT.md"]

    def test_every_link_is_an_absolute_path_that_is_there(self, one: Made) -> None:
        links = re.findall(r"\]\(<([^>]+)>\)", report_of(one).files["REPORT.md"])
        assert len(links) > 10
        assert all(Path(link).is_absolute() and Path(link).exists() for link in links)


class TestPersons:
    def test_a_statement_without_an_artifact_is_marked(self, one: Made) -> None:
        (one.root / "supplemental").mkdir()
        (one.root / "supplemental" / "look.txt").write_text("x = 1 <b>\n")
        (one.root / "supplemental" / "a b%.txt").write_text("x = 2\n")
        (one.root / "inference.md").write_text(
            "# Mine\n\n- The scale is to blame: [see](supplemental/look.txt).\n- I feel so,\n  strongly.\n\n"
            "See [this](supplemental/a%20b%25.txt) and [that](<supplemental/a b%.txt>).\n\n"
            "And `supplemental/gone.txt`.\n"
        )
        (one.root / "gaps.md").write_text("No stacks, see metadata.json.\n")
        found = report_of(one)
        statements = [(each.text, len(each.artifacts)) for each in found.report.statements]
        assert statements == [
            ("The scale is to blame: [see](supplemental/look.txt).", 1),
            ("I feel so, strongly.", 0),
            ("See [this](supplemental/a%20b%25.txt) and [that](<supplemental/a b%.txt>).", 1),
            ("And `supplemental/gone.txt`.", 0),
        ]
        assert [len(each.artifacts) for each in found.report.own_gaps] == [1]
        text = found.files["REPORT.md"]
        assert section(text, "Inference").count("**Not supported by an artifact.**") == 2
        digest = hashlib.sha256(b"x = 1 <b>\n").hexdigest()
        assert f"10 bytes, sha256 `{digest}`" in section(text, "Supplemental Analysis")
        assert "x = 1 &lt;b&gt;" in found.files["report.html"]

    def test_what_others_chose_is_text_in_both(self, tmp_path: Path) -> None:
        made = Made(tmp_path, commands={"baseline": "python train.py '<script>alert(1)</script> | `x` **b**'"})
        made.run(1, layers(1))
        files = report_of(made).files
        assert "<script>" not in files["report.html"]
        assert "&lt;script&gt;" in files["report.html"]
        assert "default-src &#39;none&#39;" in files["report.html"]

    def test_a_link_out_of_the_root_is_not_followed(self, one: Made, tmp_path: Path) -> None:
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "elsewhere" / "secret").write_text("secret words")
        (one.root / "supplemental").symlink_to(tmp_path / "elsewhere")
        assert "secret words" not in report_of(one).files["REPORT.md"]


def test_a_run_that_was_really_made(tmp_path: Path) -> None:
    """Of layer_numerics: a NaN in the second step of the first layer."""
    (tmp_path / "nan.py").write_text(NAN)
    words = ("--kind", "finite", "--question", "Where?", "--criterion", "the layer is known", "--no-observer-effect")
    investigate(tmp_path, "new", "root", *words, "--baseline", "python nan.py", "--seed", "3").ok()
    investigate(tmp_path, "run", "root").ok()
    out = investigate(tmp_path, "report", "root").ok().out
    assert out.startswith("NaN or Inf in repetition 1 (seed 3) of 1 of the baseline. It begins at step 2, in the")
    assert "the data that goes into (root), rank 0 (" in out
    assert "seen first as step 2, fwd act of 0" in out
    (evidence,) = (tmp_path / "root" / "evidence").glob("*.txt")
    assert evidence.name == "01-first-bad-001-baseline-1.txt"
    assert "First bad: step 2, fwd act of 0: 8 of 8 NaN" in evidence.read_text()
    assert "all is as it was recorded" in investigate(tmp_path, "verify", "root").ok().out


class TestWriting:
    def test_again_replaces_these_three_alone(self, one: Made) -> None:
        report_of(one)
        (one.root / "evidence" / "of-an-earlier-one.txt").write_text("x")
        (one.root / "notes.txt").write_text("mine")
        before = (one.root / "metadata.json").read_bytes()
        report_of(one)
        names = {path.name for path in one.root.iterdir()}
        assert names == {"metadata.json", "journal.jsonl", "runs", "notes.txt", "REPORT.md", "report.html", "evidence"}
        assert sorted(path.name for path in (one.root / "evidence").iterdir()) == [
            "01-tensors-compare-001-baseline-1-002-candidate-1.txt",
            "index.json",
        ]
        assert (one.root / "metadata.json").read_bytes() == before

    def test_while_runs_are_missing_it_says_so(self, tmp_path: Path) -> None:
        made = Made(tmp_path)
        made.run(1, layers(1))
        text = report_of(made).files["REPORT.md"]
        assert "**Not finished.** 1 of 2 runs are not begun." in text
        assert "Not begun: 002-candidate-1." in section(text, "Run Matrix")

    def test_the_command_prints_what_was_seen_or_all_as_json(self, one: Made, tmp_path: Path) -> None:
        ran = investigate(tmp_path, "report", "root").ok()
        assert ran.out.startswith("First divergence: after_forward:layers.1.output")
        assert (
            f"{one.root}/REPORT.md\n{one.root}/report.html\nNext: aorta-collectors investigate verify root" in ran.out
        )
        words = ("investigate", "report", str(one.root))
        loaded = json.loads(printed([*words, "--json", "--ulp", "0"]).text)
        assert loaded["criterion"]["kind"] == "ulp"
        assert [len(loaded[name]) for name in ("runs", "evidence", "conclusions")] == [2, 1, 1]
        assert printed([*words, "--bitwise", "--ulp", "1"]).code == 2
