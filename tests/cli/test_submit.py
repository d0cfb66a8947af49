"""`aorta-collectors submit`: what is wrong is said before a job is submitted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.host.support import probe_recipe, workload_recipe
from tests.scaleout import fake_slurm
from tests.scaleout.support import OUT, submit
from tests.support import PYTHON, run

pytest.importorskip("submitit", reason="submitit, of the extra `submit`, is not installed")

LOCAL = ["r.yaml", "--executor", "local"]


@pytest.mark.parametrize(
    ("content", "words", "command", "message"),
    [
        ({"trails": 1}, [], ["true"], "recipe: unknown top-level keys ['trails']"),
        ({"collect": {"layer_numerics": {"NANLOG_SAMPLE_EVERY": "often"}}}, [], ["true"], "NANLOG_SAMPLE_EVERY"),
        ({}, [], None, "is a probe-mode recipe; it requires a user command after '--'"),
        ({}, ["--collect", "nothing"], ["true"], "unknown collector recipe(s) ['nothing']"),
        ({}, ["--param", "tasks_per_node=2"], ["true"], "let its command start the processes"),
        ({}, ["--param", "slurm_partitoin=gpu"], ["true"], "Unknown argument 'partitoin' for executor 'slurm'"),
        ({}, ["--param", "timeout_min=soon"], ["true"], 'Parameter "timeout_min" expected type'),
        ({}, ["--param", "timeout_min"], ["true"], "NAME=VALUE is wanted"),
        ({"collect": ["layer_numerics"]}, [], ["ssh", "node7", "python", "x.py"], "a launch is refused: ssh"),
    ],
)
def test_what_cannot_be_honoured_is_refused(
    tmp_path: Path, content: dict[str, Any], words: list[str], command: list[str] | None, message: str
) -> None:
    probe_recipe(tmp_path / "r.yaml", **content)
    ran = submit(tmp_path, [*LOCAL, *words], command)
    assert ran.code == 1
    assert message in ran.err
    assert "Traceback" not in ran.err
    assert not (tmp_path / OUT).exists()


def test_slurm_needs_a_time_limit_and_a_cluster(tmp_path: Path) -> None:
    workload_recipe(tmp_path / "r.yaml")
    words = ["r.yaml", "--executor", "slurm"]
    assert "timeout_min=N" in submit(tmp_path, words, env=fake_slurm.install(tmp_path)).err
    ran = submit(tmp_path, [*words, "--param", "timeout_min=5"])
    assert ran.code == 1
    assert "are you indeed on a slurm cluster" in ran.err


def test_without_submitit_there_is_one_clear_error(tmp_path: Path) -> None:
    workload_recipe(tmp_path / "r.yaml")
    code = "import sys; sys.modules['submitit'] = None; from aorta_collectors.cli import main; main()"
    ran = run([PYTHON, "-c", code, "submit", *LOCAL], tmp_path)
    assert ran.code == 1
    assert ran.err == (
        "Error: submitit is not installed. It runs the jobs: pip install 'aorta-collectors[submit]' [error]\n"
    )


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    probe_recipe(tmp_path / "r.yaml")
    (tmp_path / OUT).mkdir()
    (tmp_path / OUT / "jobs").write_text("no directory")
    assert f"--output {tmp_path / OUT} cannot be used: " in submit(tmp_path, LOCAL, ["true"]).err
    (tmp_path / "r.yaml").write_bytes(b"\xff\xfe")
    assert "is no text in UTF-8" in submit(tmp_path, LOCAL, ["true"]).err
