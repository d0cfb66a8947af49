"""How a run went, from the files that a sweep leaves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aorta_collectors.investigate.design import Design
from aorta_collectors.investigate.logs import keep_output, last_lines
from aorta_collectors.investigate.observed import observed_in
from aorta_collectors.investigate.outcome import Trial, outcome_of
from tests.investigate.made import Made, layers

HERE = "bundles/investigation/none-none/_subprocess"


def line(point: str, rank: int = 0, name: str = "", **changed: Any) -> str:
    return json.dumps({"rank": rank, "point": point, "name": name or f"{point}:0.output", **changed}) + "\n"


def artifacts(run: Path, **files: str) -> list[dict[str, Any]]:
    directory = run / HERE / "trial_d0_m0_t0" / "tensors"
    directory.mkdir(parents=True)
    for name, text in files.items():
        (directory / f"{name}.jsonl").write_text(text)
    return [{"collector": "tensors", "artifacts": directory.relative_to(run).as_posix()}]


class TestObserved:
    def test_points_and_names_are_those_that_every_rank_has(self, tmp_path: Path) -> None:
        receipts = artifacts(
            tmp_path,
            tensors_rank0=line("after_forward") + line("after_backward") + line("user", name="user:x"),
            tensors_rank1=line("after_forward", 1),
            tensors_rank1_p77=line("after_backward", 1),
        )
        found = observed_in(tmp_path, receipts, {})
        assert found.missing(["after_forward", "after_backward"]) == []
        assert found.missing(["after_step", "user:x"]) == ["after_step", "user:x"]

    def test_without_any_line_all_points_are_missing(self, tmp_path: Path) -> None:
        found = observed_in(tmp_path, artifacts(tmp_path), {})
        assert (found.missing(["after_forward"]), found.finite) == (["after_forward"], None)

    def test_where_a_point_lacks_the_names_seen_are_told_and_the_call_that_would_make_it(self, tmp_path: Path) -> None:
        text = line("after_forward") + line("user", name="user:x") + line("grad", name="grad:y")
        found = observed_in(tmp_path, artifacts(tmp_path, tensors_rank0=text), {})
        assert found.told_of(["user:logits"]) == (
            'nothing was observed at user:logits (does the program call observe(..., name="logits")? names seen: '
            "after_forward, grad:y, user:x)"
        )
        none = observed_in(tmp_path, [], {})
        assert none.told_of(["after_step"]) == "nothing was observed at after_step (no name was seen)"

    def test_half_a_line_does_not_hide_the_others(self, tmp_path: Path) -> None:
        found = observed_in(tmp_path, artifacts(tmp_path, tensors_rank0=line("after_forward") + '{"rank": 0, "poi'), {})
        assert found.missing(["after_forward"]) == []
        assert "line 2 is no observation" in found.unreadable

    @pytest.mark.parametrize(("counts", "finite"), [((0, 0), True), ((1, 0), False), ((0, 3), False)])
    def test_a_nan_or_inf_in_an_observation_is_seen(
        self, tmp_path: Path, counts: tuple[int, int], finite: bool
    ) -> None:
        text = line("after_forward", nan_count=counts[0], inf_count=counts[1])
        assert observed_in(tmp_path, artifacts(tmp_path, tensors_rank0=text), {}).finite is finite

    @pytest.mark.parametrize(
        ("metrics", "finite"),
        [
            ({}, None),
            ({"numerics_tensors_read": 0}, None),
            ({"layer_numerics_modules": 2}, True),
            ({"layer_numerics_modules": 2, "layer_numerics_first_nonfinite_step": 3}, False),
            (
                {
                    "layer_numerics_modules": 2,
                    "layer_numerics_first_nonfinite_step": 3,
                    "layer_numerics_first_nonfinite_by_design": 1,
                },
                True,
            ),
            ({"final_loss": float("nan")}, False),
            ({"final_loss": float("-inf")}, False),
            ({"final_loss": 1.0}, None),
        ],
    )
    def test_metrics_tell_it_too(self, tmp_path: Path, metrics: dict[str, Any], finite: bool | None) -> None:
        assert observed_in(tmp_path, [], metrics).finite is finite


class TestTrial:
    @pytest.mark.parametrize(
        ("record", "verdict", "code", "fault"),
        [
            ({"workload": "_subprocess", "result": {"metrics": {"exit_code": 0, "verdict": "pass"}}}, "pass", 0, ""),
            (
                {"workload": "_subprocess", "result": {"metrics": {"exit_code": 3, "verdict": "fail"}}},
                "fail",
                3,
                "exited with 3",
            ),
            (
                {"workload": "_subprocess", "result": {"metrics": {"exit_code": -9, "verdict": "fail"}}},
                "fail",
                -9,
                "killed by SIGKILL",
            ),
            (
                {"workload": "_subprocess", "result": {"metrics": {"exit_code": -1, "verdict": "fail"}}},
                "fail",
                None,
                "--timeout",
            ),
            ({"workload": "_subprocess", "result": {"metrics": {"exit_code": 0, "verdict": "fail"}}}, "fail", 0, ""),
            ({"workload": "training", "exit_status": "ok", "result": {}}, "pass", None, ""),
            (
                {
                    "workload": "training",
                    "exit_status": "infrastructure_failed",
                    "result": {"failure_details": [{"error": "no device"}]},
                },
                "error",
                None,
                "no device",
            ),
            ({"workload": "training", "exit_status": "workload_failed", "result": {}}, "fail", None, "workload_failed"),
            (
                {
                    "workload": "script",
                    "exit_status": "workload_failed",
                    "result": {"metrics": {"script_exit_code": -15}, "failure_details": [{"type": "ScriptTimeout"}]},
                },
                "fail",
                None,
                "--timeout",
            ),
        ],
    )
    def test_exit_code_verdict_and_fault_follow_from_the_record(
        self, record: dict[str, Any], verdict: str, code: int | None, fault: str
    ) -> None:
        trial = Trial(Path("x"), record)
        assert (trial.verdict, trial.exit_code) == (verdict, code)
        assert fault in trial.fault
        assert bool(trial.fault) == bool(fault)

    @pytest.mark.parametrize("record", [{}, {"result": []}, {"result": {"metrics": 3, "failure_details": ["x"]}}])
    def test_a_record_that_a_program_has_spoiled_is_no_success(self, record: dict[str, Any]) -> None:
        assert Trial(Path("x"), record).fault


class TestOutcome:
    def test_a_sweep_that_never_came_to_the_program_says_its_last_word(self, tmp_path: Path) -> None:
        (tmp_path / "sweep.log").write_text("hello\nError: no such thing\n\n")
        (tmp_path / "bundles").mkdir()
        assert outcome_of(tmp_path, ["tensors"], []) == {
            "state": "failed",
            "reason": "the sweep ended before the program: Error: no such thing",
        }

    def test_of_a_program_that_failed_the_receipt_says_how_far_it_came(self, tmp_path: Path) -> None:
        made = Made(tmp_path, design=Design.of("values", observer_effect=False))
        run = made.run(1, layers(1), exit_code=1, verdict="fail")
        (receipt,) = run.rglob("receipt_*.json")
        told = "rank 0 ended in step 2 with RuntimeError: boom (the command exited with 1; see stderr.log of the trial)"
        receipt.write_text(json.dumps({**json.loads(receipt.read_text()), "verdict": "incomplete", "reason": told}))
        reason = outcome_of(run, ["tensors"], [])["reason"]
        assert reason == "the program exited with 1: rank 0 ended in step 2 with RuntimeError: boom"

    def test_a_run_that_asked_for_evidence_and_has_none_is_failed(self, tmp_path: Path) -> None:
        (tmp_path / HERE).mkdir(parents=True)
        metrics = {"exit_code": 0, "verdict": "pass", "loss": float("inf"), "ok": True}
        record = {"trial_id": "t", "config": {}, "workload": "_subprocess", "result": {"metrics": metrics}}
        text = json.dumps(record).replace("Infinity", '"inf"')
        (tmp_path / HERE / "trial_d0_m0_t0.json").write_text(text)
        found = outcome_of(tmp_path, ["tensors"], ["after_forward"])
        assert (found["state"], found["exit_code"], found["metrics"]) == ("failed", 0, {"exit_code": 0})
        assert found["reason"] == "no evidence of tensors: no trial asked for it"
        assert found["points_missing"] == ["after_forward"]
        bare = outcome_of(tmp_path, [], ["after_forward"])
        assert (bare["state"], bare["reason"], bare["points_missing"]) == ("completed", "", [])


class TestOutput:
    def test_the_programs_output_is_put_beside_the_record(self, tmp_path: Path) -> None:
        trial = tmp_path / "bundles" / "investigation" / "none-none" / "trial_0"
        trial.mkdir(parents=True)
        (trial / "stdout.log").write_bytes(b"\xff out")
        (trial / "stderr.log").symlink_to("/etc/hostname")
        (tmp_path / "sweep.log").write_text("the sweep's")
        keep_output(tmp_path)
        assert (tmp_path / "stdout.log").read_bytes() == b"\xff out"
        assert "symbolic link" in (tmp_path / "stderr.log").read_text()

    def test_of_a_workload_inside_aorta_it_is_the_sweeps(self, tmp_path: Path) -> None:
        (tmp_path / "sweep.log").write_text("the sweep's")
        keep_output(tmp_path)
        assert (tmp_path / "stdout.log").read_text() == "the sweep's"
        assert (tmp_path / "stderr.log").read_text() == ""

    def test_the_last_lines_are_those_that_say_something(self, tmp_path: Path) -> None:
        (tmp_path / "log").write_text("x\n" * 100_000 + "a\n\n  \nb\n")
        assert last_lines(tmp_path / "log", 2) == ["a", "b"]
        assert last_lines(tmp_path / "none", 2) == []
