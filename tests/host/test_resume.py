"""Resuming and retention in the probe flow: a cell counts as done only if its evidence is there, or was."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aorta_collectors.host import cells
from aorta_collectors.host.attachment import Attachment
from tests.host.support import PROGRAM, Sweep, once, probe_recipe, read_json, sweep_command
from tests.support import run, summary

pytestmark = pytest.mark.sweep

COUNTING = 'with open("runs", "a") as stream: stream.write("x")\n' + PROGRAM
ASK = ("--collect", "layer_numerics")


def _sweep(tmp_path: Path, *, plugin: bool = True, **content: Any) -> Sweep:
    recipe = probe_recipe(tmp_path / "r.yaml", **content)
    return sweep_command(tmp_path, recipe, ["python", "train.py"], *ASK, plugin=plugin)


def _runs(tmp_path: Path) -> int:
    return len((tmp_path / "runs").read_text())


def _captured(directory: Path) -> Sweep:
    (directory / "train.py").write_text(COUNTING)
    return _sweep(directory)


@pytest.fixture
def captured(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> Sweep:
    """A sweep of one trial, captured, as if it had been run in `tmp_path`."""
    sweep = once(tmp_path_factory, "resumed", _captured)
    sweep.ran.ok()
    shutil.copytree(sweep.run_dir.parents[1], tmp_path, dirs_exist_ok=True)
    return replace(sweep, run_dir=tmp_path / "out" / "T-1")


def test_a_cell_is_resumed_only_with_its_evidence(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(COUNTING)

    stock = _sweep(tmp_path, plugin=False)
    assert stock.ran.code == 0  # the silent pass: asked for evidence, has none
    assert not list(stock.cell_dir("none").glob("receipt_*"))
    assert _runs(tmp_path) == 1

    first = _sweep(tmp_path)
    first.ran.ok()
    assert _runs(tmp_path) == 2
    receipt = first.receipt()
    assert receipt["verdict"] == "captured"

    again = _sweep(tmp_path)
    again.ran.ok()
    assert _runs(tmp_path) == 2
    assert again.receipt() == receipt
    assert "captured" in again.ran.out

    (first.cell_dir("none") / "receipt_d0_m0_t0_layer_numerics.json").unlink()
    rerun = _sweep(tmp_path)
    rerun.ran.ok()
    assert _runs(tmp_path) == 3
    assert rerun.receipt()["run_ids"] != receipt["run_ids"]
    assert summary(rerun.artifacts())["run_id"] in rerun.receipt()["run_ids"]


def test_a_cell_without_evidence_runs_again_until_it_has_some(captured: Sweep, tmp_path: Path) -> None:
    """Its program now ends early; the evidence of the run before does not count for it."""
    _receipt(captured).unlink()
    for runs in (2, 3):
        (tmp_path / "train.py").write_text('with open("runs", "a") as stream: stream.write("x")\n')
        sweep = _sweep(tmp_path)
        assert sweep.ran.code == 1
        assert sweep.receipt()["verdict"] == "missing"
        assert sweep.command()["verdict"] == "error"
        assert _runs(tmp_path) == runs


def _edited(path: Path, **fields: object) -> None:
    path.write_text(json.dumps({**read_json(path), **fields}))


TAMPERED: dict[str, Callable[[Sweep], object]] = {
    "records changed": lambda sweep: (sweep.artifacts() / "layers_rank0.jsonl").write_text("{}\n"),
    "summary gone": lambda sweep: (sweep.artifacts() / "summary_rank0.json").unlink(),
    "a receipt that lies": lambda sweep: _edited(_receipt(sweep), verdict="off"),
    "a receipt of another cell": lambda sweep: _edited(_receipt(sweep), cell="another"),
    "a receipt of other options": lambda sweep: _edited(_receipt(sweep), options={"NANLOG_SAMPLE_EVERY": "7"}),
    "pruned by nobody": lambda sweep: _edited(_receipt(sweep), verdict="pruned"),
    "a receipt of another version": lambda sweep: _edited(_receipt(sweep), schema_version=2),
    "a receipt cut short": lambda sweep: _receipt(sweep).write_bytes(_receipt(sweep).read_bytes()[:-40]),
}


def _receipt(sweep: Sweep) -> Path:
    return sweep.cell_dir("none") / "receipt_d0_m0_t0_layer_numerics.json"


def test_evidence_that_was_changed_since_is_gathered_again(captured: Sweep, tmp_path: Path) -> None:
    sweep = captured
    wanted = cells._Wanted("none-none", ("layer_numerics",), {}, most=1, off=False, retained=False)
    cell_dir = sweep.run_dir / "none-none"
    assert wanted.without_evidence(Attachment(), cell_dir) == ""
    for way, tamper in TAMPERED.items():
        copy = replace(sweep, run_dir=tmp_path / "copy")
        shutil.copytree(sweep.run_dir, copy.run_dir)
        tamper(copy)
        assert wanted.without_evidence(Attachment(), copy.run_dir / "none-none"), way
        shutil.rmtree(copy.run_dir)

    TAMPERED["records changed"](sweep)
    again = _sweep(tmp_path)
    again.ran.ok()
    assert _runs(tmp_path) == 2
    assert again.receipt()["verdict"] == "captured"
    assert "run again, since trial _subprocess_d0_m0_t0 has invalid" in again.ran.err


def test_a_cell_that_stopped_early_is_resumed_with_fewer_trials(tmp_path: Path) -> None:
    """Two passes are enough of at most four; asked for three, the cell runs again, and older receipts do not help."""
    (tmp_path / "train.py").write_text(COUNTING)
    rule = {"events": 2, "max_trials": 4, "event_verdict": "pass"}
    first = _sweep(tmp_path, stop_after=rule)
    first.ran.ok()
    assert _runs(tmp_path) == 2
    assert "captured" in first.ran.out
    _sweep(tmp_path, stop_after=rule).ran.ok()
    assert _runs(tmp_path) == 2
    more = _sweep(tmp_path, stop_after={**rule, "events": 3})
    more.ran.ok()
    assert _runs(tmp_path) == 5
    assert [more.receipt(trial=trial)["verdict"] for trial in range(3)] == ["captured"] * 3
    ran = run(["aorta-collectors", "verify", str(more.run_dir)], tmp_path).ok()
    assert "3 of 3 requests satisfied" in ran.out


def test_evidence_that_retention_removed_is_pruned_and_satisfies(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(COUNTING)
    retain = {"on_pass": "log"}
    sweep = _sweep(tmp_path, retain=retain)
    sweep.ran.ok()
    receipt = sweep.receipt()
    assert receipt["verdict"] == "pruned"
    assert receipt["metrics"]["layer_numerics_steps"] == 5
    assert receipt["files"].keys() == {"layers_rank0.jsonl", "summary_rank0.json"}
    assert not list(sweep.artifacts().glob("*"))
    assert sweep.stdout()
    assert sweep.command()["verdict"] == "pass"
    assert sweep.cell("none")["metrics_summary"]["layer_numerics_records"]["n"] == 1

    run(["aorta-collectors", "verify", str(sweep.run_dir)], tmp_path).ok()

    again = _sweep(tmp_path, retain=retain)
    again.ran.ok()
    assert _runs(tmp_path) == 1
