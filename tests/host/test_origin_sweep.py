"""The origin of a bad value in a sweep's results: numbers in the matrix, words in the trial's record, both flows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.host.support import (
    PROGRAM,
    Sweep,
    cell,
    mitigations,
    once,
    probe_recipe,
    sweep_command,
    sweep_workload,
    workload_recipe,
)
from tests.support import run, summary

pytestmark = pytest.mark.sweep

FIELDS = ("stage", "module", "step", "rank")
NUMBERS = {"layer_numerics_origin_step", "layer_numerics_origin_rank"}
#: Overflows in the second step, which the workload lets pass: the host counts the metrics of passing trials alone.
OVERFLOW = {
    "optimizer": {"lr": 1e30},
    "checks": {"fail_on_nan_loss": False, "fail_on_nonfinite_output": False, "fail_on_nan_grad": False},
}


def _command(directory: Path) -> Sweep:
    (directory / "train.py").write_text(PROGRAM)
    file = mitigations(directory / "m.json", {"diverging": {"TRAIN_ARGS": "--lr 2 --steps 9"}})
    recipe = probe_recipe(
        directory / "r.yaml", ["none", "diverging"], collect={"layer_numerics": {"NANLOG_ORIGIN": "1"}}
    )
    return sweep_command(directory, recipe, ["python", "train.py"], "--mitigations-file", str(file))


def _workload(directory: Path) -> Sweep:
    cells = [cell("clean"), cell("diverging", workload_config=OVERFLOW)]
    # Only the head is watched, and the origin is looked for everywhere.
    spec = '{"watch": [{"scope": {"names": ["head"]}, "tensors": ["output"]}], "origin": true}'
    recipe = workload_recipe(directory / "r.yaml", cells=cells, collect={"layer_numerics": {"NANLOG_SPEC": spec}})
    return sweep_workload(directory, recipe)


@pytest.fixture(scope="module")
def sweeps(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Sweep]:
    """A sweep of each flow; in each, one cell is clean and one diverges."""
    return {
        "command": once(tmp_path_factory, "origin_command", _command),
        "workload": once(tmp_path_factory, "origin_workload", _workload),
    }


@pytest.mark.parametrize(("flow", "step"), [("command", 8), ("workload", 2)])
class TestADivergingCell:
    def test_the_receipt_has_what_the_summary_says(self, sweeps: dict[str, Sweep], flow: str, step: int) -> None:
        sweep = sweeps[flow]
        receipt, origin = sweep.receipt("diverging"), summary(sweep.artifacts("diverging"))["origin"]
        assert receipt["verdict"] == "captured", receipt["reason"]
        assert {field: receipt["metrics"][f"layer_numerics_origin_{field}"] for field in FIELDS} == {
            field: origin[field] for field in FIELDS
        }
        assert origin["step"] == step
        assert origin["rank"] == 0

    def test_the_matrix_has_the_numbers_alone(self, sweeps: dict[str, Sweep], flow: str, step: int) -> None:
        metrics = sweeps[flow].cell("diverging")["metrics_summary"]
        assert {name for name in metrics if "origin" in name} == NUMBERS
        assert metrics["layer_numerics_origin_step"] == {"mean": step, "min": step, "max": step, "n": 1}
        assert metrics["layer_numerics_origin_rank"]["mean"] == 0

    def test_the_trials_record_has_the_words(self, sweeps: dict[str, Sweep], flow: str, step: int) -> None:
        metrics = sweeps[flow].trial("diverging")["result"]["metrics"]
        assert metrics["layer_numerics_origin_step"] == step
        assert metrics["layer_numerics_origin_stage"] == "forward"
        assert metrics["layer_numerics_origin_module"] == {"command": "2", "workload": "mlp.0"}[flow]

    def test_verify_agrees(self, sweeps: dict[str, Sweep], flow: str, step: int) -> None:
        run_dir = sweeps[flow].run_dir
        ran = run(["aorta-collectors", "verify", str(run_dir)], run_dir.parent).ok()
        assert "2 of 2 requests satisfied" in ran.out


@pytest.mark.parametrize(("flow", "name"), [("command", "none"), ("workload", "clean")])
def test_a_clean_cell_has_no_origin(sweeps: dict[str, Sweep], flow: str, name: str) -> None:
    sweep = sweeps[flow]
    assert sweep.receipt(name)["verdict"] == "captured"
    assert summary(sweep.artifacts(name))["origin"] is None
    assert not any("origin" in metric for metric in sweep.receipt(name)["metrics"])
    assert not any("origin" in metric for metric in sweep.cell(name)["metrics_summary"])
