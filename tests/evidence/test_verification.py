"""Each verdict but invalid, on artifacts of a real run that were then changed in one way."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from aorta_collectors.api import Verdict
from tests.evidence.conftest import RUN_ID
from tests.evidence.damage import BAD_OPTIONS, OPTIONS, Copy, check, edit, edit_records, second_rank, verdict

#: Of a process that called no model.
NO_MODEL = {"watched_count": 0, "watched_names": [], "roots": [], "steps_seen": 0, "tensors_observed": 0}


class TestCaptured:
    def test_a_real_run_is_captured_with_its_files_and_metrics(self, artifacts: Copy) -> None:
        found = check(artifacts())
        assert found.verification.verdict is Verdict.CAPTURED
        assert found.verification.reason == "2 module(s) over 5 step(s), 1 rank(s)"
        assert list(found.files) == ["layers_rank0.jsonl", "summary_rank0.json"]
        assert all(size > 0 for size in found.files.values())
        process = found.verification.details["processes"][0]
        assert (process["files"], process["status"], process["steps_seen"]) == ("rank0", "complete", 5)
        assert found.metrics["layer_numerics_steps"] == 5
        assert found.metrics["layer_numerics_modules"] == 2
        assert found.metrics["layer_numerics_ranks"] == 1
        assert not [name for name in found.metrics if "first_bad" in name]

    def test_a_program_that_stopped_itself_over_a_bad_value_is_captured(self, artifacts: Copy) -> None:
        found = check(artifacts("bad"), BAD_OPTIONS)
        assert found.verification.verdict is Verdict.CAPTURED
        assert found.verification.details["processes"][0]["ended_by"] == "RuntimeError: boom"
        assert found.metrics["layer_numerics_first_bad_step"] == 1
        assert found.metrics["layer_numerics_first_bad_kind"] == "huge"

    def test_two_ranks_are_captured_together(self, artifacts: Copy) -> None:
        directory = artifacts()
        second_rank(directory)
        assert verdict(directory) == (Verdict.CAPTURED, "2 module(s) over 5 step(s), 2 rank(s)")
        assert check(directory, world_size=2).metrics["layer_numerics_ranks"] == 2

    def test_a_rank_without_a_model_is_none_that_is_missing(self, artifacts: Copy) -> None:
        directory = artifacts()
        second_rank(directory, **NO_MODEL)
        found = check(directory).verification
        assert found.verdict is Verdict.CAPTURED
        assert found.reason == "2 module(s) over 5 step(s), 1 rank(s); rank(s) 1 built or called no model"
        assert [process["state"] for process in found.details["processes"]] == ["complete", "no model"]

    def test_a_stage_in_which_nothing_is_watched_is_told(self, artifacts: Copy) -> None:
        directory = artifacts()
        second_rank(directory, watched_count=0, watched_names=[], unmatched_groups=[0])
        found, reason = verdict(directory)
        assert (found, "nothing of the model of rank(s) 1 is watched" in reason) == (Verdict.CAPTURED, True)

    @pytest.mark.parametrize(
        ("key", "value", "told"),
        [
            ("unmatched_groups", [0], "watch[0] matches no module on rank(s) 1"),
            ("unmatched_bounds", ["head"], "NANLOG_BOUNDS: 'head' is in no name on rank(s) 1"),
        ],
    )
    def test_a_scope_that_only_one_ranks_part_of_the_model_meets(
        self, artifacts: Copy, key: str, value: list[Any], told: str
    ) -> None:
        directory = artifacts()
        second_rank(directory, **{key: value})
        found, reason = verdict(directory)
        assert (found, told in reason) == (Verdict.CAPTURED, True)
        edit(directory, **{key: value})
        assert verdict(directory)[0] is Verdict.MISAPPLIED

    def test_a_rank_that_ended_because_another_saw_something_bad(self, artifacts: Copy) -> None:
        directory = artifacts()
        bad = {"step": 5, "layer": "a", "direction": "fwd", "kind": "nan", "matmul_calls_so_far": 1}
        second_rank(directory, first_bad=bad, ended_by="RuntimeError: loss is nan")
        edit(directory, ended_by="RuntimeError: connection closed by peer")
        assert verdict(directory)[0] is Verdict.CAPTURED

    def test_a_helper_that_only_imported_torch_does_no_harm(self, artifacts: Copy) -> None:
        directory = artifacts()
        content = json.loads((directory / "summary_rank0.json").read_text())
        helper = {"pid": 999_999, "watched_count": 0, "watched_names": [], "steps_seen": 0, "records_written": 0}
        (directory / "summary_rank0_p999999.json").write_text(json.dumps({**content, **helper}))
        assert verdict(directory)[0] is Verdict.CAPTURED

    def test_a_file_of_somebody_else_does_no_harm(self, artifacts: Copy) -> None:
        directory = artifacts()
        (directory / "notes.txt").write_text("mine")
        (directory / "summary_rank0.json.bak").write_text("mine")
        (directory / "link").symlink_to("notes.txt")
        assert verdict(directory)[0] is Verdict.CAPTURED


class TestMissing:
    @pytest.mark.parametrize(
        ("route", "why"),
        [
            ("front-end", "the program ended before it imported torch, was killed, or removed its artifacts"),
            ("environment", "run the script through `python -m aorta_collectors.layer_numerics` inside the command"),
            ("in-process", "the workload did not import torch in aorta's process"),
        ],
    )
    def test_no_summary_is_missing_and_says_why_for_the_route(self, tmp_path: Path, route: str, why: str) -> None:
        (tmp_path / "empty").mkdir()
        found, reason = verdict(tmp_path / "empty", route=route)
        assert found is Verdict.MISSING
        assert reason.startswith("no summary_rank<N>.json: ")
        assert reason.endswith(why)

    def test_a_directory_that_is_gone_is_missing(self, tmp_path: Path) -> None:
        found, reason = verdict(tmp_path / "layer_numerics")
        assert found is Verdict.MISSING
        assert reason == "the artifact directory layer_numerics is gone: the program, or what it ran, removed it"


class TestStale:
    def test_a_summary_of_another_trial_is_stale(self, artifacts: Copy) -> None:
        for other in ("trial-0", None, ...):
            directory = artifacts()
            edit(directory, run_id=other)
            found, reason = verdict(directory)
            assert found is Verdict.STALE
            assert reason.startswith("summary_rank0.json is from another run (run id ")
            shutil.rmtree(directory)

    def test_one_rank_of_another_trial_is_enough(self, artifacts: Copy) -> None:
        directory = artifacts()
        second_rank(directory, run_id="trial-0")
        assert verdict(directory)[0] is Verdict.STALE

    def test_each_rank_may_have_a_run_id_of_its_own(self, artifacts: Copy) -> None:
        directory = artifacts()
        second_rank(directory, run_id="trial-1-rank-1")
        assert verdict(directory, run_ids=frozenset({RUN_ID, "trial-1-rank-1"}))[0] is Verdict.CAPTURED

    @pytest.mark.parametrize(("key", "value"), [("pid", 1), ("host", "elsewhere"), ("rank", 3)])
    def test_a_record_of_another_process_is_stale(self, artifacts: Copy, key: str, value: object) -> None:
        directory = artifacts()
        edit_records(directory, lambda lines: lines[-1].update({key: value}))
        found, reason = verdict(directory)
        assert found is Verdict.STALE
        assert "not from this trial" in reason


class TestUnattached:
    @pytest.mark.parametrize(
        ("changes", "reason"),
        [
            (
                {"roots": [], "modules_built": 0},
                "the program built no PyTorch model",
            ),
            ({"roots": [], "modules_built": 3}, "the program built PyTorch modules but called none of them"),
        ],
    )
    def test_nothing_was_watched(self, artifacts: Copy, changes: dict[str, Any], reason: str) -> None:
        directory = artifacts()
        edit(directory, watched_count=0, watched_names=[], steps_seen=0, **changes)
        found, said = verdict(directory)
        assert found is Verdict.UNATTACHED
        assert reason in said

    def test_a_scope_that_matches_no_module_is_shown_beside_the_model(self, artifacts: Copy) -> None:
        directory = artifacts()
        edit(directory, watched_count=0, watched_names=[], watch_types=["MLP"], watch_names=["head"])
        found, reason = verdict(directory)
        assert found is Verdict.UNATTACHED
        assert reason.startswith("the watch scope matched no module of Sequential (types=['MLP'], names=['head'])")

    def test_hooks_on_a_model_that_was_never_called(self, artifacts: Copy) -> None:
        directory = artifacts()
        edit(directory, steps_seen=0)
        assert verdict(directory)[0] is Verdict.UNATTACHED
        assert "never called" in verdict(directory)[1]

    def test_steps_in_which_no_tensor_was_read(self, artifacts: Copy) -> None:
        directory = artifacts()
        edit(directory, tensors_observed=0)
        assert verdict(directory) == (
            Verdict.UNATTACHED,
            "rank 0 ran 5 step(s), but no watched module passed a readable tensor",
        )


class TestMisapplied:
    @pytest.mark.parametrize(
        ("raw", "reason"),
        [
            ({}, "sample_every in force is 1, asked for 50"),
            ({**OPTIONS, "NANLOG_PRE_CONTEXT": "3"}, "pre_context in force is 0, asked for 3"),
            ({**OPTIONS, "NANLOG_CHANNELS": "weight"}, "groups in force is [{"),
            ({"NANLOG_SPEC": '{"sample_every": 1}'}, "spec_source is None, which was not asked for"),
        ],
    )
    def test_another_configuration_than_asked_for(self, artifacts: Copy, raw: dict[str, str], reason: str) -> None:
        found, why = verdict(artifacts(), raw)
        assert found is Verdict.MISAPPLIED
        assert why.startswith(f"summary_rank0.json: {reason}")

    def test_a_spec_that_was_asked_for_but_rejected(self, artifacts: Copy) -> None:
        directory = artifacts()
        edit(directory, spec_present=True, spec_applied=False, spec_error="bad JSON", spec_source="NANLOG_SPEC")
        assert verdict(directory, {"NANLOG_SPEC": '{"sample_every": 1}'}) == (
            Verdict.MISAPPLIED,
            "summary_rank0.json: the spec was not applied: bad JSON",
        )

    def test_a_spec_that_nobody_asked_for(self, artifacts: Copy) -> None:
        directory = artifacts()
        edit(directory, spec_present=True, spec_applied=True, spec_source="NANLOG_SPEC_FILE=x.json")
        assert verdict(directory)[0] is Verdict.MISAPPLIED

    @pytest.mark.parametrize("config", [..., {}, {"sample_every": 1}])
    def test_a_configuration_that_is_not_told(self, artifacts: Copy, config: Any) -> None:
        directory = artifacts()
        edit(directory, config=config)
        assert verdict(directory)[0] is Verdict.MISAPPLIED

    def test_a_spec_that_says_the_same_as_the_flat_variables_in_force_is_applied(self, artifacts: Copy) -> None:
        directory = artifacts()
        edit(directory, spec_present=True, spec_applied=True, spec_source="NANLOG_SPEC")
        assert verdict(directory, {"NANLOG_SPEC": '{"sample_every": 1}'})[0] is Verdict.CAPTURED


class TestIncomplete:
    def test_a_rank_that_left_nothing(self, artifacts: Copy) -> None:
        directory = artifacts()
        edit(directory, world_size=4)
        assert verdict(directory) == (Verdict.INCOMPLETE, "no evidence from rank(s) 1, 2, 3 of 4")

    def test_the_host_knows_of_more_ranks_than_the_artifacts(self, artifacts: Copy) -> None:
        found = verdict(artifacts(), world_size=2)
        assert found == (Verdict.INCOMPLETE, "no evidence from rank(s) 1 of 2")

    @pytest.mark.parametrize(
        ("changes", "reason"),
        [
            ({"ended_by": "RuntimeError: boom"}, "rank 1 ended with RuntimeError: boom; it had called no model"),
            ({"status": "running", "ended_by": None}, "rank 1 died; it had called no model"),
        ],
    )
    def test_a_rank_that_failed_before_it_called_a_model(
        self, artifacts: Copy, changes: dict[str, Any], reason: str
    ) -> None:
        directory = artifacts()
        second_rank(directory, **{**NO_MODEL, **changes})
        assert verdict(directory) == (Verdict.INCOMPLETE, reason)

    def test_a_rank_without_a_model_whose_hooks_failed(self, artifacts: Copy) -> None:
        directory = artifacts()
        second_rank(directory, **{**NO_MODEL, "hook_errors": 2, "first_hook_error": "KeyError: 'x'"})
        reason = "rank 1: 2 tensor(s) could not be observed: KeyError: 'x'"
        assert verdict(directory) == (Verdict.INCOMPLETE, reason)

    def test_records_without_a_summary_are_of_a_process_that_died_as_it_began(self, artifacts: Copy) -> None:
        directory = artifacts()
        (directory / "layers_rank0_p77.jsonl").touch()
        found = verdict(directory)
        assert found[0] is Verdict.INCOMPLETE
        assert found[1].startswith("layers_rank0_p77.jsonl has no summary beside it")

    def test_the_rank_that_was_killed_is_named_before_those_that_ended_because_of_it(self, artifacts: Copy) -> None:
        directory = artifacts()
        second_rank(directory, status="running", ended_by=None)
        edit(directory, ended_by="RuntimeError: connection closed by peer")
        assert verdict(directory) == (Verdict.INCOMPLETE, "rank 1 died in step 5; evidence ends there")

    @pytest.mark.parametrize("step", [7, None])
    def test_what_a_rank_saw_after_the_end_of_another_does_not_explain_that(
        self, artifacts: Copy, step: int | None
    ) -> None:
        directory = artifacts()
        bad = {"step": step, "layer": "a", "direction": "fwd", "kind": "nan", "matmul_calls_so_far": 1}
        second_rank(directory, first_bad=bad if step else None)
        edit(directory, ended_by="RuntimeError: boom")
        assert verdict(directory)[0] is Verdict.INCOMPLETE

    def test_a_process_that_was_killed(self, artifacts: Copy) -> None:
        directory = artifacts()
        edit(directory, status="running", ended_by=None, steps_seen=6)
        assert verdict(directory) == (Verdict.INCOMPLETE, "rank 0 died in step 6; evidence ends there")

    def test_a_killed_process_may_have_written_more_than_its_summary_knows(self, artifacts: Copy) -> None:
        directory = artifacts()
        edit(directory, status="running", ended_by=None, records_written=0)
        assert verdict(directory)[0] is Verdict.INCOMPLETE
        edit(directory, records_written=1000)
        assert verdict(directory)[0] is Verdict.INVALID

    def test_one_rank_of_two_that_was_killed(self, artifacts: Copy) -> None:
        directory = artifacts()
        second_rank(directory, status="running", ended_by=None)
        assert verdict(directory) == (Verdict.INCOMPLETE, "rank 1 died in step 5; evidence ends there")

    def test_a_disk_that_was_full(self, artifacts: Copy) -> None:
        directory = artifacts()
        edit(directory, write_error="layers_rank0.jsonl: No space left on device")
        assert verdict(directory) == (
            Verdict.INCOMPLETE,
            "rank 0 could not write on: layers_rank0.jsonl: No space left on device",
        )

    def test_an_exception_before_anything_bad_was_seen(self, artifacts: Copy) -> None:
        directory = artifacts()
        edit(directory, ended_by="RuntimeError: boom")
        assert verdict(directory) == (
            Verdict.INCOMPLETE,
            "rank 0 ended in step 5 with RuntimeError: boom, before anything bad was seen",
        )

    @pytest.mark.parametrize("ended_by", [None, "exit", ...])
    def test_an_ordinary_end_is_complete(self, artifacts: Copy, ended_by: Any) -> None:
        directory = artifacts()
        edit(directory, ended_by=ended_by)
        assert verdict(directory)[0] is Verdict.CAPTURED
