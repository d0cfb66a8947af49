"""`aorta-collectors`: asking after a run whether the evidence is there, now."""

from __future__ import annotations

import json
import shutil
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from tests.faults.sweeps import started, until
from tests.host.support import Sweep, aorta, inference_recipe, once, sweep_workload, workload_recipe
from tests.support import Ran, run

pytestmark = pytest.mark.sweep

CELL = Path("cells/baseline/inference")
RECORDS = CELL / "trial_d0_m0_t1/layer_numerics/layers_rank0.jsonl"
SUMMARY = CELL / "trial_d0_m0_t1/layer_numerics/summary_rank0.json"
RECEIPT = CELL / "receipt_d0_m0_t1_layer_numerics.json"


def _build(directory: Path) -> Sweep:
    options = {"NANLOG_SAMPLE_EVERY": "1", "NANLOG_HUGE_THRESHOLD": "0.000001"}
    recipe = inference_recipe(directory / "r.yaml", options)
    return sweep_workload(directory, recipe)


@pytest.fixture
def run_dir(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> Path:
    """A copy of a good run, to spoil. It has moved, as a run does that is sent to a colleague."""
    sweep = once(tmp_path_factory, "verified", _build)
    sweep.ran.ok()
    return Path(shutil.copytree(sweep.run_dir, tmp_path / "run"))


def _verify(run_dir: Path, *options: str) -> Ran:
    return run(["aorta-collectors", "verify", *options, str(run_dir)], run_dir.parent)


def _findings(run_dir: Path, code: int) -> list[dict[str, Any]]:
    ran = _verify(run_dir, "--json")
    assert ran.code == code, ran.err
    loaded: list[dict[str, Any]] = json.loads(ran.out)
    return loaded


def _spoiled(run_dir: Path) -> dict[str, Any]:
    """The finding that is no longer satisfied; all others must be."""
    (finding,) = [finding for finding in _findings(run_dir, 1) if not finding["satisfied"]]
    assert finding["cell"] == "baseline"
    assert finding["trial"].endswith("d0_m0_t1")
    return finding


def test_a_good_run_is_satisfied_in_a_table(run_dir: Path) -> None:
    ran = _verify(run_dir).ok()
    assert "4 of 4 requests satisfied" in ran.out
    rows = [line.split() for line in ran.out.splitlines() if " layer_numerics " in line]
    assert [row[0] for row in rows] == ["bare", "bare", "baseline", "baseline"]
    assert [row[3] for row in rows] == ["off", "off", "captured", "captured"]
    assert "step 1 fwd" in ran.out
    assert ran.err == ""


def test_a_good_run_is_satisfied_in_json(run_dir: Path) -> None:
    findings = _findings(run_dir, 0)
    assert [finding["verdict"] for finding in findings] == ["off", "off", "captured", "captured"]
    assert all(finding["satisfied"] for finding in findings)
    assert {finding["collector"] for finding in findings} == {"layer_numerics"}
    first = findings[2]
    assert Path(first["artifacts"]) == run_dir / CELL / "trial_d0_m0_t0/layer_numerics"
    assert first["metrics"]["layer_numerics_first_bad_step"] == 1


def test_a_part_of_a_run_can_be_verified_alone(run_dir: Path) -> None:
    assert "2 of 2 requests satisfied" in _verify(run_dir / "cells" / "bare").ok().out


@pytest.mark.parametrize("path", [RECORDS, SUMMARY], ids=["records", "summary"])
def test_a_deleted_artifact_is_noticed(run_dir: Path, path: Path) -> None:
    (run_dir / path).unlink()
    finding = _spoiled(run_dir)
    assert finding["verdict"] == ("missing" if path == SUMMARY else "invalid")
    assert "since then" in finding["reason"]
    table = _verify(run_dir)
    assert table.code == 1
    assert "3 of 4 requests satisfied" in table.out
    assert finding["reason"] in table.out


def test_a_deleted_artifact_directory_is_noticed(run_dir: Path) -> None:
    shutil.rmtree((run_dir / RECORDS).parent)
    assert _spoiled(run_dir)["verdict"] == "missing"


def test_an_edited_value_that_still_fits_the_schema_is_noticed(run_dir: Path) -> None:
    """The receipt vouches for the files as they were when the trial ended."""
    text = (run_dir / RECORDS).read_text()
    record = json.loads(text.splitlines()[0])
    edited = json.dumps({**record, "finite_abs_max": 12345.678})
    (run_dir / RECORDS).write_text("\n".join([edited, *text.splitlines()[1:]]) + "\n")
    assert _spoiled(run_dir)["verdict"] == "invalid"


def test_evidence_of_another_trial_is_stale(run_dir: Path) -> None:
    other = run_dir / CELL / "trial_d0_m0_t0/layer_numerics"
    shutil.copytree(other, (run_dir / RECORDS).parent, dirs_exist_ok=True)
    assert _spoiled(run_dir)["verdict"] == "stale"


def test_a_receipt_of_another_trial_is_stale(run_dir: Path) -> None:
    shutil.copy(run_dir / CELL / "receipt_d0_m0_t0_layer_numerics.json", run_dir / RECEIPT)
    assert _spoiled(run_dir)["verdict"] == "stale"


def test_a_receipt_that_was_edited_to_be_satisfied_is_held_against_the_trials_record(run_dir: Path) -> None:
    content = json.loads((run_dir / RECEIPT).read_text())
    changes: dict[str, dict[str, Any]] = {
        "a receipt that says off, although collectors were not switched off": {"verdict": "off"},
        "a receipt that says pruned, although no retain: block": {"verdict": "pruned"},
        "a receipt for other options": {"options": {**content["options"], "NANLOG_SAMPLE_EVERY": "7"}},
        "a receipt that says on_missing: warn": {"on_missing": "warn"},
    }
    for message, change in changes.items():
        (run_dir / RECEIPT).write_text(json.dumps({**content, **change}))
        finding = _spoiled(run_dir)
        assert (finding["verdict"], message in finding["reason"]) == ("invalid", True), finding["reason"]
    (run_dir / RECEIPT).write_text(json.dumps(content))
    bare = run_dir / "cells/bare/inference/receipt_d0_m0_t1_layer_numerics.json"
    bare.write_text(json.dumps({**json.loads(bare.read_text()), "verdict": "captured"}))
    (finding,) = [finding for finding in _findings(run_dir, 1) if not finding["satisfied"]]
    assert "a receipt that says captured, although collectors were switched off" in finding["reason"]


def test_a_file_that_was_added_is_told_and_vouched_for_by_nobody(run_dir: Path) -> None:
    (run_dir / RECORDS).with_name("notes.txt").write_text("mine")
    assert [finding["added"] for finding in _findings(run_dir, 0)] == [[], [], [], ["notes.txt"]]
    assert "layer_numerics (1 file(s) added since: notes.txt)" in _verify(run_dir).ok().out


def test_a_run_without_receipts_is_missing_its_evidence(run_dir: Path) -> None:
    for receipt in run_dir.rglob("receipt_*.json"):
        receipt.unlink()
    findings = _findings(run_dir, 1)
    assert {finding["verdict"] for finding in findings} == {"missing"}
    assert all("ran without aorta-collectors" in finding["reason"] for finding in findings)


def test_a_run_of_a_host_without_the_plugin_is_missing_its_evidence(tmp_path: Path) -> None:
    recipe = workload_recipe(tmp_path / "r.yaml", "inference", steps=1)
    words = ["sweep", "run", "--recipe", str(recipe), "--output", "out", "--collect", "layer_numerics"]
    aorta(words, tmp_path, plugin=False).ok()
    (finding,) = _findings(tmp_path / "out", 1)
    assert finding["verdict"] == "missing"


def test_a_directory_without_requests_is_no_success(tmp_path: Path) -> None:
    ran = _verify(tmp_path)
    assert ran.code == 1
    assert "no trial below" in ran.err
    assert "Traceback" not in ran.err
    assert _findings(tmp_path, 1) == []


def test_a_path_that_is_no_directory_is_wrong_usage(tmp_path: Path) -> None:
    ran = _verify(tmp_path / "nowhere")
    assert ran.code == 2
    assert "nowhere" in ran.err


def test_a_trial_whose_record_is_damaged_is_told_from_the_receipt_beside_it(run_dir: Path) -> None:
    (run_dir / CELL / "trial_d0_m0_t1.json").write_text("{")
    ran = _verify(run_dir)
    assert ran.code == 1
    assert "trial 1: invalid: the record of this trial cannot be read: trial_d0_m0_t1.json" in ran.out
    assert "3 of 4 requests satisfied" in ran.out
    assert "Traceback" not in ran.err


def test_a_trial_whose_record_is_gone_is_missed_by_the_ledger(run_dir: Path) -> None:
    (run_dir / CELL / "trial_d0_m0_t1.json").unlink()
    ran = _verify(run_dir)
    assert ran.code == 1
    assert "trial 1: missing: the record of this trial is gone" in ran.out
    assert "3 of 4 requests satisfied" in ran.out


def test_a_run_without_a_sweep_misses_the_trials_that_it_did_not_come_to(tmp_path: Path) -> None:
    words = ["aorta", "run", "--workload", "inference", "--trials", "40", "--steps", "2"]
    words += ["--collect", "layer_numerics", "--results-dir", "results"]
    place = tmp_path / "results" / "inference"
    with started(words, tmp_path) as host:
        until(lambda: list(place.glob("receipt_*")), "the first trial does not end", host)
        host.kill()
    ran = _verify(tmp_path / "results")
    assert ran.code == 1
    assert "of 40 requests satisfied" in ran.out
    assert "trial 39: missing: there is no record of this trial: the run has not come to its end" in ran.out
    shutil.copytree(tmp_path / "results", tmp_path / "a" / "b")
    assert "of 40 requests satisfied" in _verify(tmp_path / "a").out  # it may have moved, as runs do


def test_list_names_the_collectors_and_says_that_the_host_fits(tmp_path: Path) -> None:
    ran = run(["aorta-collectors", "list"], tmp_path).ok()
    assert any(line.startswith("layer_numerics ") for line in ran.out.splitlines())
    assert f"{version('amd-aorta')}: the plugin attaches" in ran.out


def test_list_shows_a_collector_that_cannot_be_loaded_and_exits_1(tmp_path: Path) -> None:
    info = tmp_path / "broken-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[aorta.collectors]\nfaulty = no_such_module:Faulty\n")
    ran = run(["aorta-collectors", "list"], tmp_path, {"PYTHONPATH": str(tmp_path)})
    assert ran.code == 1
    assert "NOT USABLE" in ran.out
    assert "no_such_module" in ran.out
    assert any(line.startswith("layer_numerics ") and "NOT USABLE" not in line for line in ran.out.splitlines())


@pytest.mark.parametrize("command", [[], ["verify"], ["list"]], ids=["main", "verify", "list"])
def test_help_has_an_example(command: list[str], tmp_path: Path) -> None:
    ran = run(["aorta-collectors", *command, "--help"], tmp_path).ok()
    assert "Example: " in ran.out
    assert f"aorta-collectors {' '.join(command)}".strip() in ran.out.split("Example: ")[1]


def test_the_version_is_that_of_the_package(tmp_path: Path) -> None:
    assert run(["aorta-collectors", "--version"], tmp_path).ok().out.split()[-1] == version("aorta-collectors")
