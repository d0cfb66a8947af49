"""Workloads inside the host's own process: each cell that asks for evidence has it, or the sweep does not exit 0."""

from __future__ import annotations

from pathlib import Path

import pytest

from aorta_collectors.schema_check import first_error
from tests.host.support import Sweep, cell, inference_recipe, once, sweep_workload, workload_recipe
from tests.support import records, summary

pytestmark = pytest.mark.sweep

EVERY_STEP = {"NANLOG_SAMPLE_EVERY": "1"}
NOWHERE = {"NANLOG_WATCH_NAMES": "no_such_layer"}
OVERFLOW = {"optimizer": {"lr": 1e30}}


def _training(directory: Path) -> Sweep:
    cells = [
        cell("baseline"),
        cell("bare", "no_collectors"),
        cell("unasked", collect=[]),
        cell("replaced", collect={"layer_numerics": {"NANLOG_CHANNELS": "act", **EVERY_STEP}}),
        cell("sensitive", collect={"layer_numerics": {"NANLOG_HUGE_THRESHOLD": "0.000001", **EVERY_STEP}}),
        cell("unmatched", collect={"layer_numerics": NOWHERE}),
        cell("tolerated", collect={"layer_numerics": {"on_missing": "warn", **NOWHERE}}),
        cell("overflowing", workload_config=OVERFLOW),
        cell("overflowing_unmatched", workload_config=OVERFLOW, collect={"layer_numerics": NOWHERE}),
        cell("last"),
    ]
    recipe = workload_recipe(directory / "r.yaml", trials=2, cells=cells, collect={"layer_numerics": EVERY_STEP})
    return sweep_workload(directory, recipe)


def _inference(directory: Path) -> Sweep:
    return sweep_workload(directory, inference_recipe(directory / "r.yaml", EVERY_STEP))


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    return once(tmp_path_factory, "training", _training)


@pytest.fixture(scope="module")
def inference(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    return once(tmp_path_factory, "inference", _inference)


CAPTURED = ["baseline", "replaced", "sensitive", "overflowing", "last"]


@pytest.mark.parametrize("trial", [0, 1])
@pytest.mark.parametrize("name", CAPTURED)
def test_each_trial_of_training_has_verified_evidence(training: Sweep, name: str, trial: int) -> None:
    receipt = training.receipt(name, trial)
    assert receipt["verdict"] == "captured", receipt["reason"]
    content = summary(training.artifacts(name, trial))
    assert content["run_id"] in receipt["run_ids"]
    assert content["status"] == "complete"
    assert content["steps_seen"] == 3
    assert content["watched_names"] == ["module.mlp.0", "module.mlp.2", "module.head"]
    assert content["hook_errors"] == 0
    assert content["records_written"] == len(records(training.artifacts(name, trial) / "layers_rank0.jsonl"))


@pytest.mark.parametrize("trial", [0, 1])
def test_inference_is_captured_and_the_sweep_exits_0(inference: Sweep, trial: int) -> None:
    inference.ran.ok()
    receipt = inference.receipt("baseline", trial)
    assert receipt["verdict"] == "captured", receipt["reason"]
    lines = records(inference.artifacts("baseline", trial) / "layers_rank0.jsonl")
    assert lines
    assert {line["direction"] for line in lines} == {"fwd"}  # nothing runs backward in inference
    assert inference.trial("baseline", trial)["exit_status"] == "ok"


def test_numeric_metrics_reach_the_matrix(training: Sweep, inference: Sweep) -> None:
    metrics = training.cell("sensitive")["metrics_summary"]
    assert metrics["layer_numerics_records"] == {"mean": 18.0, "min": 18.0, "max": 18.0, "n": 2.0}
    assert metrics["layer_numerics_modules"]["mean"] == 3
    assert metrics["layer_numerics_steps"]["mean"] == 3
    assert metrics["layer_numerics_first_bad_step"]["mean"] == 1
    # 3 modules, 3 steps, one direction.
    assert training.cell("replaced")["metrics_summary"]["layer_numerics_records"]["mean"] == 9
    assert "layer_numerics_first_bad_step" not in training.cell("baseline")["metrics_summary"]
    assert inference.cell("baseline")["metrics_summary"]["layer_numerics_records"]["mean"] > 0


def test_words_about_the_first_bad_value_stay_in_the_trial_record(training: Sweep) -> None:
    metrics = training.trial("overflowing")["result"]["metrics"]
    assert metrics["layer_numerics_first_bad_kind"] in ("nan", "inf", "huge")
    assert metrics["layer_numerics_first_bad_layer"].startswith("module.")
    assert metrics["layer_numerics_first_bad_direction"] == "fwd"


@pytest.mark.parametrize("name", ["baseline", "bare", "unmatched", "tolerated", "overflowing_unmatched"])
def test_a_receipt_is_valid_and_says_what_was_asked_and_found(training: Sweep, name: str) -> None:
    receipt = training.receipt(name, 1)
    assert first_error("receipt", receipt) is None
    assert receipt["collector"] == "layer_numerics"
    assert receipt["trial"] == training.trial(name, 1)["trial_id"] == "training_d0_m0_t1"
    assert receipt["cell"] == name
    assert receipt["artifacts"] == "trial_d0_m0_t1/layer_numerics"
    assert receipt["launch"] is None
    asked = {"baseline": EVERY_STEP, "bare": EVERY_STEP, "tolerated": {"on_missing": "warn", **NOWHERE}}
    assert receipt["options"] == asked.get(name, NOWHERE)
    assert receipt["on_missing"] == ("warn" if name == "tolerated" else "error")


def test_a_receipt_lists_the_files_with_their_sizes(training: Sweep) -> None:
    sizes = {path.name: path.stat().st_size for path in training.artifacts("baseline").iterdir()}
    assert set(sizes) == {"layers_rank0.jsonl", "summary_rank0.json"}
    assert training.receipt("baseline")["files"] == sizes


def test_a_cell_with_no_collectors_is_off_and_runs_uninstrumented(training: Sweep, inference: Sweep) -> None:
    for sweep in (training, inference):
        receipt = sweep.receipt("bare")
        assert receipt["verdict"] == "off"
        assert receipt["files"] == {}
        assert not sweep.artifacts("bare").exists()
        assert sweep.trial("bare")["exit_status"] == "ok"
        assert not any(name.startswith("layer_numerics") for name in sweep.cell("bare")["metrics_summary"])


def test_the_loss_is_bit_identical_with_the_collector_and_without(training: Sweep) -> None:
    losses = {name: training.trial(name)["result"]["metrics"]["final_loss"] for name in ("baseline", "bare", "unasked")}
    assert len(set(losses.values())) == 1, losses


def test_an_empty_collect_block_of_a_cell_disables_and_leaves_no_receipt(training: Sweep) -> None:
    assert training.trial("unasked")["exit_status"] == "ok"
    assert not list(training.cell_dir("unasked").glob("receipt_*"))
    assert not training.artifacts("unasked").exists()


def test_a_collect_block_of_a_cell_replaces_the_recipes(training: Sweep) -> None:
    content = summary(training.artifacts("replaced"))
    assert content["channels"] == ["act"]
    assert content["matmul_calls_total"] == 9
    assert {line["role"] for line in records(training.artifacts("replaced") / "layers_rank0.jsonl")} == {
        records(training.artifacts("baseline") / "layers_rank0.jsonl")[0]["role"]
    }


def test_a_scope_that_matches_nothing_turns_a_pass_into_an_error(training: Sweep) -> None:
    trial, receipt = training.trial("unmatched"), training.receipt("unmatched")
    assert receipt["verdict"] == "unattached"
    assert "no_such_layer" in receipt["reason"]
    assert trial["result"]["passed"] is False
    assert trial["exit_status"] == "infrastructure_failed"
    (detail,) = trial["result"]["failure_details"]
    assert detail["collector"] == "layer_numerics"
    assert detail["verdict"] == "unattached"
    assert receipt["reason"] in detail["error"]
    row = training.cell("unmatched")
    assert (row["passed_count"], row["failed_count"], row["error_count"]) == (0, 0, 2) or row["error_rate"] == 1.0


def test_cells_without_evidence_are_named_and_the_sweep_exits_1(training: Sweep) -> None:
    assert training.ran.code == 1
    error = training.ran.err.splitlines()[-1]
    assert error.startswith("Error: 4 of 18 requests for evidence not satisfied")
    assert "unmatched" in error
    assert "overflowing_unmatched" in error
    assert "tolerated" not in error
    assert "no_such_layer" in training.ran.out


def test_on_missing_warn_relaxes_the_verdict_but_never_the_receipt(training: Sweep) -> None:
    assert training.receipt("tolerated")["verdict"] == "unattached"
    trial = training.trial("tolerated")
    assert trial["result"]["passed"] is True
    assert trial["exit_status"] == "ok"
    assert trial["result"]["failure_details"] == []
    assert any(line.startswith("tolerated") and "unattached" in line for line in training.ran.out.splitlines())


def test_a_failure_stays_a_failure_with_evidence_of_where_it_began(training: Sweep) -> None:
    trial = training.trial("overflowing")
    assert trial["exit_status"] == "workload_failed"
    assert all("problems" in detail for detail in trial["result"]["failure_details"])
    assert training.receipt("overflowing")["verdict"] == "captured"
    assert training.cell("overflowing")["failed_count"] == 2
    first_bad = summary(training.artifacts("overflowing"))["first_bad"]
    # The workload counts its steps from 0 and sees the loss alone; the first step's optimizer does the harm.
    assert first_bad["step"] == trial["result"]["first_failure_iteration"] + 1 == 2


def test_a_failure_stays_a_failure_without_evidence(training: Sweep) -> None:
    with_evidence, without = training.trial("overflowing"), training.trial("overflowing_unmatched")
    assert without["exit_status"] == "workload_failed"
    assert training.cell("overflowing_unmatched")["failed_count"] == 2
    assert without["result"]["failure_count"] == with_evidence["result"]["failure_count"]
    *own, ours = without["result"]["failure_details"]
    assert own == with_evidence["result"]["failure_details"]
    assert (ours["collector"], ours["verdict"]) == ("layer_numerics", "unattached")


def test_trials_of_one_process_share_no_state(training: Sweep) -> None:
    seen = {(name, trial): summary(training.artifacts(name, trial)) for name in CAPTURED for trial in (0, 1)}
    assert len({content["pid"] for content in seen.values()}) == 1
    assert len({content["run_id"] for content in seen.values()}) == len(seen)
    # "last" runs after cells with other channels, another threshold, and values that overflow.
    first, last = seen["baseline", 0], seen["last", 1]
    varying = ("run_id", "started_at", "jsonl", "overhead", "step_times_ms")
    assert {key: value for key, value in first.items() if key not in varying} == {
        key: value for key, value in last.items() if key not in varying
    }


def test_the_host_takes_none_of_our_files_for_a_trial(training: Sweep) -> None:
    assert len(training.cell("baseline")["trial_paths"]) == 2
