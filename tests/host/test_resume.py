"""Resuming and retention in the probe flow: a cell counts as done only if its evidence is there, or was."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.host.support import PROGRAM, Sweep, probe_recipe, sweep_command
from tests.support import run, summary

pytestmark = pytest.mark.sweep

COUNTING = 'with open("runs", "a") as stream: stream.write("x")\n' + PROGRAM
ASK = ("--collect", "layer_numerics")


def _sweep(tmp_path: Path, *, plugin: bool = True, **content: object) -> Sweep:
    recipe = probe_recipe(tmp_path / "r.yaml", **content)
    return sweep_command(tmp_path, recipe, ["python", "train.py"], *ASK, plugin=plugin)


def _runs(tmp_path: Path) -> int:
    return len((tmp_path / "runs").read_text())


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


def test_a_cell_without_evidence_runs_again_until_it_has_some(tmp_path: Path) -> None:
    """Its program now ends early; the evidence of the run before does not count for it."""
    (tmp_path / "train.py").write_text(COUNTING)
    _sweep(tmp_path).ran.ok()
    receipt = tmp_path / "out/T-1/none-none/_subprocess/receipt_d0_m0_t0_layer_numerics.json"
    receipt.unlink()
    for runs in (2, 3):
        (tmp_path / "train.py").write_text('with open("runs", "a") as stream: stream.write("x")\n')
        sweep = _sweep(tmp_path)
        assert sweep.ran.code == 1
        assert sweep.receipt()["verdict"] == "missing"
        assert sweep.command()["verdict"] == "error"
        assert _runs(tmp_path) == runs


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
