"""`aorta-collectors report`: where the file goes, its values as JSON, and what is said without what draws it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.captured.synthetic import record, write
from tests.support import PYTHON, run

WITHOUT = "import sys; sys.modules[{!r}] = None; from aorta_collectors.cli import main; main()"


def test_it_lies_in_the_run_directory_and_says_where(captured: Callable[[str], Path], tmp_path: Path) -> None:
    run_dir = shutil.copytree(captured("overflow"), tmp_path / "a run")
    ran = run(["aorta-collectors", "report", str(run_dir)], tmp_path).ok()
    file, address = ran.out.splitlines()
    assert file.startswith(f"{run_dir / 'report.html'} (")
    assert address == (run_dir / "report.html").as_uri()
    page = (run_dir / "report.html").read_text()
    assert page.startswith("<!DOCTYPE html>")
    assert "none-none/_subprocess/trial_d0_m0_t0.json" in page
    # What is verified afterwards does not mind it.
    run(["aorta-collectors", "verify", str(run_dir)], tmp_path).ok()


def test_json_has_what_the_page_shows(captured: Callable[[str], Path], tmp_path: Path) -> None:
    ran = run(["aorta-collectors", "report", str(captured("overflow")), "--json"], tmp_path).ok()
    found = json.loads(ran.out)
    assert found["headline"] == "Huge value in step 18, layer over_arch.model.1"
    assert [trial["outcome"] for trial in found["trials"]] == ["baseline", "removed", "no evidence"]
    lead = found["details"][0]
    assert lead["run_up"][0]["series"]["layer"] == "over_arch.model.1"
    assert len(lead["heat"]["magnitudes"]) == len(lead["heat"]["rows"])
    assert not (tmp_path / "report.html").exists()


def test_a_cell_alone_into_a_file(captured: Callable[[str], Path], tmp_path: Path) -> None:
    words = ["report", str(captured("overflow")), "--cell", "clip_gradients-none", "-o", "one.html"]
    ran = run(["aorta-collectors", *words], tmp_path).ok()
    assert ran.out.splitlines()[0].startswith("one.html (")
    assert "Nothing bad in 1 observed trial" in (tmp_path / "one.html").read_text()
    nowhere = run(["aorta-collectors", *words[:-1], "no/one.html"], tmp_path)
    assert nowhere.code == 1
    assert "no" in nowhere.err


def test_what_is_no_file_is_not_replaced_by_one(tmp_path: Path) -> None:
    write(tmp_path / "out", {0: [record(1)]})
    os.mkfifo(tmp_path / "pipe")
    ran = run(["aorta-collectors", "report", "out", "-o", "pipe"], tmp_path)
    assert ran.code == 1
    assert "pipe is no regular file" in ran.err
    assert (tmp_path / "pipe").is_fifo()


def test_one_trials_report_does_not_lie_among_its_artifacts(captured: Callable[[str], Path], tmp_path: Path) -> None:
    run_dir = shutil.copytree(captured("pipeline"), tmp_path / "run")
    (artifacts,) = run_dir.glob("*/_subprocess/trial_*/layer_numerics")
    run(["aorta-collectors", "report", str(artifacts)], tmp_path).ok()
    (artifacts.parent / "report.html").unlink()
    run(["aorta-collectors", "report", "."], artifacts).ok()
    assert (artifacts.parent / "report.html").exists()
    assert not (artifacts / "report.html").exists()
    run(["aorta-collectors", "verify", str(run_dir)], tmp_path).ok()


@pytest.mark.parametrize("lacking", ["jinja2", "plotly.offline", "duckdb"])
def test_what_lacks_is_named_with_how_to_get_it(tmp_path: Path, lacking: str) -> None:
    write(tmp_path / "out", {0: [record(1)]})
    ran = run([PYTHON, "-c", WITHOUT.format(lacking), "report", str(tmp_path / "out")], tmp_path)
    assert ran.code == 1
    assert lacking in ran.err
    assert "pip install 'aorta-collectors[report]'" in ran.err
    assert not (tmp_path / "out" / "report.html").exists()
