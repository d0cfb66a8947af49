"""The report at the end of a sweep: written, told of, and never a reason to fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.captured.runs import swept
from tests.captured.synthetic import record, write
from tests.support import PYTHON, run

WRITE = """
import sys
from pathlib import Path
for name in sys.argv[2:]:
    sys.modules[name] = None
from aorta_collectors.report.after_sweep import write_beside
write_beside(Path(sys.argv[1]), sys.stdout)
"""


@pytest.mark.sweep
def test_a_sweep_ends_with_its_evidence_and_a_link_to_the_report(tmp_path_factory: pytest.TempPathFactory) -> None:
    sweep = swept(tmp_path_factory, "overflow")
    lines = sweep.ran.out.splitlines()
    (link,) = [line for line in lines if line.startswith("Report: ")]
    assert link == f"Report: {Path('out', sweep.run_dir.name, 'report.html')}"
    assert lines.index("Evidence") < lines.index(link)
    assert "over_arch.model.1" in (sweep.run_dir / "report.html").read_text(encoding="utf-8")


def test_it_can_be_left_out(tmp_path: Path) -> None:
    write(tmp_path / "out", {0: [record(1)]})
    said = run([PYTHON, "-c", WRITE, "out"], tmp_path, {"AORTA_COLLECTORS_REPORT": "OFF"}).ok()
    assert said.out == ""
    assert not (tmp_path / "out" / "report.html").exists()


@pytest.mark.parametrize("lacking", [["duckdb"], ["jinja2"], ["plotly"]])
def test_without_what_draws_it_says_how_to_get_it(tmp_path: Path, lacking: list[str]) -> None:
    write(tmp_path / "out", {0: [record(1)]})
    said = run([PYTHON, "-c", WRITE, "out", *lacking], tmp_path, {"AORTA_COLLECTORS_REPORT": ""}).ok()
    assert said.out == "Report: pip install 'aorta-collectors[report]', then aorta-collectors report out\n"


def test_a_report_that_cannot_be_written_fails_nothing(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    said = run([PYTHON, "-c", WRITE, "out"], tmp_path, {"AORTA_COLLECTORS_REPORT": ""}).ok()
    assert said.out.startswith("Report: none (ArtifactError: nothing was captured below out")
    assert said.out.endswith("; try aorta-collectors report out\n")
    write(tmp_path / "out", {0: [record(1)]})
    (tmp_path / "out" / "report.html").mkdir()
    said = run([PYTHON, "-c", WRITE, "out"], tmp_path, {"AORTA_COLLECTORS_REPORT": ""}).ok()
    assert "Report: none (" in said.out
