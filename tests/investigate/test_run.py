"""`investigate run`: real sweeps in the declared order, and what is kept of each."""

from __future__ import annotations

import hashlib
import json
import shlex
from pathlib import Path

import pytest

from aorta_collectors.investigate.design import Design
from aorta_collectors.investigate.files import open_investigation
from tests.investigate.support import declared, investigate, record

pytestmark = pytest.mark.sweep


def test_a_pair_of_which_one_fails(tmp_path: Path) -> None:
    """Both runs are kept, the failed one with its reason, and nothing is run again."""
    root = tmp_path / "root"
    commands = {"baseline": "python train.py", "candidate": "python train.py"}
    environments = {"candidate": ["CODE=3"]}
    design = Design.of("values", observer_effect=False)
    asked = {"design": design, "seed": 5, "commands": commands, "environments": environments, "timeout_s": 120}
    declared(root, tmp_path, kind="values", **asked)

    first = investigate(tmp_path, "run", "root", "--only", "1").ok()
    assert "1 completed, 0 failed, 1 left" in first.out
    baseline = record(root, "001-baseline-1")
    assert (baseline["state"], baseline["exit_code"], baseline["verdict"]) == ("completed", 0, "pass")
    assert baseline["points_missing"] == []
    assert baseline["finite"] is True
    assert [receipt["verdict"] for receipt in baseline["receipts"]] == ["captured"]
    assert baseline["duration_s"] > 0
    assert baseline["cpu_s"] > 0
    assert baseline["max_rss_bytes"] > 50 << 20
    assert baseline["metrics"]["tensors_nonfinite"] == 0
    assert baseline["environment"]["INVESTIGATION_SEED"] == "5"

    repeated = investigate(tmp_path, "run", "root", "--only", "1")
    assert (repeated.code, "no run is repeated" in repeated.err) == (1, True)

    second = investigate(tmp_path, "run", "root")
    assert second.code == 1
    assert "1 completed, 1 failed, 0 left" in second.out
    assert "002-candidate-1: failed after" in second.err
    assert "    | last words" in second.err
    candidate = record(root, "002-candidate-1")
    assert (candidate["state"], candidate["exit_code"]) == ("failed", 3)
    assert candidate["reason"] == "the program exited with 3"
    assert (candidate["seed"], baseline["seed"]) == (5, 5)
    runs = open_investigation(root).runs()
    assert [run.number for run in runs] == [1, 2]
    starts = [run.record["started_at"] for run in runs]
    assert starts == sorted(starts)
    for run in runs:
        files = {
            path.relative_to(run.directory).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in run.directory.rglob("*")
            if path.is_file() and path.name != "run.json"
        }
        assert files == run.record["sha256"]
        assert files.keys() >= {"command.txt", "stdout.log", "stderr.log", "sweep.log", "recipe.yaml"}
        text = (run.directory / "command.txt").read_text()
        assert shlex.split(text.splitlines()[-1]) == run.record["command"]
        assert "seed 5 5" in (run.directory / "stdout.log").read_text()
        assert "last words" in (run.directory / "stderr.log").read_text()
    metadata = open_investigation(root).metadata
    assert metadata["environment"]["torch"]["version"]
    assert metadata["files"][str(tmp_path / "train.py")].startswith("sha256:")

    before = {path: path.stat().st_mtime_ns for path in (root / "runs").rglob("*")}
    again = investigate(tmp_path, "run", "root")
    assert (again.code, "1 completed, 1 failed, 0 left" in again.out) == (1, True)
    assert {path: path.stat().st_mtime_ns for path in (root / "runs").rglob("*")} == before


def test_a_changed_script_is_refused_unless_it_is_allowed_and_recorded(tmp_path: Path) -> None:
    root = tmp_path / "root"
    declared(root, tmp_path, commands={"baseline": "python train.py"})
    (tmp_path / "train.py").write_text("print('no torch')\n")
    first = investigate(tmp_path, "run", "root", "--only", "1")
    assert first.code == 1  # nothing was captured
    assert "no evidence of layer_numerics" in record(root, "001-baseline-1")["reason"]

    out_of_order = investigate(tmp_path, "run", "root", "--only", "3")
    assert (out_of_order.code, "the schedule has runs 1 to 2" in out_of_order.err) == (1, True)

    (tmp_path / "train.py").write_text("print('another')\n")
    refused = investigate(tmp_path, "run", "root", env={"OMP_NUM_THREADS": "2"})
    assert refused.code == 1
    assert f"{tmp_path / 'train.py'}: sha256:" in refused.err
    assert "variables OMP_NUM_THREADS: 1 before, 2 now" in refused.err
    assert not (root / "runs" / "002-baseline-1-bare").exists()

    allowed = investigate(tmp_path, "run", "root", "--allow-changes", env={"OMP_NUM_THREADS": "2"})
    assert allowed.code == 1  # for the first run, which failed
    bare = record(root, "002-baseline-1-bare")
    assert (bare["tool"], bare["state"], bare["receipts"], bare["finite"]) == (False, "completed", [], None)
    assert "collect" not in (root / "runs" / "002-baseline-1-bare" / "recipe.yaml").read_text()
    (change,) = json.loads((root / "metadata.json").read_text())["changes"]
    assert change["before_run"] == 2
    assert any("OMP_NUM_THREADS" in line for line in change["what"])
