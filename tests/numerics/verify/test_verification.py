"""Each verdict on what numerics left: synthetic captures, changed in one way each."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from aorta_collectors.api import Verdict
from tests.numerics.synthetic import RUN_ID, escalation, stat, step_line, write
from tests.numerics.verified import ALL, check, edit_lines, told

UNSEEN = {"watched_count": 0, "called_count": 0, "roots": [], "steps_seen": 0}
BAD = {**stat(3, "h.0.mlp", 4, nan_count=2), "rank": 0, "pid": 1000}
OPAQUE = "torch.compile or TorchScript runs h.0, h.1, and what they run is not seen"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "trial" / "numerics"


class TestCaptured:
    @pytest.mark.parametrize(
        "config",
        [
            {},
            {"trace": "layer"},
            {"trace": "none"},
            {"trace": "basic", "step_metrics": "off"},
            {"profile": "immediate", "escalate": "off"},
            {"trace": "none", "step_metrics": "off", "profile": "deferred"},
            {"trace": "layer", "steps": ("attn", "h.0"), "interval": 5},
            ALL,
        ],
    )
    def test_what_each_set_of_options_asks_for(self, place: Path, config: Mapping[str, Any]) -> None:
        write(place, config=config)
        assert told(place, config) == (Verdict.CAPTURED, "9 module(s) over 4 step(s), 1 rank(s)")

    def test_two_ranks_and_what_the_receipt_says_of_them(self, place: Path) -> None:
        write(place, ranks=2, config=ALL, escalations=[escalation("h.0.attn")])
        found = check(place, ALL, world_size=2)
        assert (found.verdict, found.reason) == (Verdict.CAPTURED, "9 module(s) over 4 step(s), 2 rank(s)")
        processes = found.details["processes"]
        assert [(process["files"], process["state"]) for process in processes] == [
            ("rank0", "complete"),
            ("rank1", "complete"),
        ]
        assert processes[1]["lines_written"] == {"spans": 41, "stats": 72, "steps": 4, "escalations": 1}
        json.dumps(found.details)

    def test_a_program_that_was_stopped_over_a_bad_value(self, place: Path) -> None:
        config = {"trace": "layer", "on_bad": "stop"}
        stopped = {"layer": "h.0.mlp", "step": 3, "direction": "forward", "kind": "nan", "causes": []}
        lines = [step_line(step) for step in (1, 2)]
        summary = {"stopped": stopped, "first_bad": BAD, "ended_by": "LineStopped (exit status 86)"}
        write(place, steps=3, config=config, step_lines=lines, summary=summary)
        verdict, reason = told(place, config)
        assert verdict is Verdict.CAPTURED
        assert "on_bad: stop ended rank 0 in step 3 at h.0.mlp" in reason

    def test_a_program_that_failed_over_what_was_seen(self, place: Path) -> None:
        config = {"trace": "layer"}
        write(place, config=config, summary={"ended_by": "RuntimeError: nan", "first_bad": BAD})
        assert told(place, config)[0] is Verdict.CAPTURED

    def test_a_rank_that_ended_because_another_saw_something_bad(self, place: Path) -> None:
        failed = {"ended_by": "RuntimeError: connection lost"}
        config = {"trace": "layer"}
        write(place, ranks=2, config=config, by_rank={0: failed, 1: {**failed, "first_bad": BAD}})
        assert told(place, config)[0] is Verdict.CAPTURED

    def test_a_rank_without_a_model_and_an_attempt_before(self, place: Path) -> None:
        earlier = {"launcher": "1", "restart": 0, "status": "running"}
        now = {"launcher": "1", "restart": 1}
        write(place, ranks=3, by_rank={0: earlier, 1: now, 2: {**now, **UNSEEN}})
        # The workers of the second attempt are ranks 0 and 2 of a job.
        shutil.move(place / "summary_rank0.json", place / "summary_rank0_p1000.json")
        for kind in ("spans", "steps"):
            shutil.move(place / f"{kind}_rank0.jsonl", place / f"{kind}_rank0_p1000.jsonl")
            edit_lines(place, kind, lambda lines: [line.update(rank=0) for line in lines], 1)
        summary = json.loads((place / "summary_rank1.json").read_text())
        (place / "summary_rank1.json").write_text(json.dumps({**summary, "rank": 0, "world_size": 1}))
        summary = json.loads((place / "summary_rank2.json").read_text())
        (place / "summary_rank2.json").write_text(json.dumps({**summary, "rank": 1, "world_size": 2}))
        found = check(place)
        assert found.verdict is Verdict.CAPTURED
        assert found.reason.endswith("rank(s) 1 built or called no model; 1 process(es) superseded by restart 1")
        assert [process["state"] for process in found.details["processes"]] == ["superseded", "complete", "no model"]

    @pytest.mark.parametrize(
        ("config", "summary", "note"),
        [
            ({}, {"opaque_names": ["h.0", "h.1"]}, "not seen, since torch.compile or TorchScript runs them: h.0, h.1"),
            ({"profile": "deferred"}, {"roofline": None}, "no roofline was measured"),
            (
                {"profile": "deferred"},
                {"escalations": {"taken": 0, "suppressed": 0, "unavailable": ["strace: not permitted"]}},
                "escalations had to do without: strace: not permitted",
            ),
            (
                {"otlp_endpoint": "http://x"},
                {"otlp": {"endpoint": "http://x", "sent": 1, "dropped": 7, "error": "refused"}},
                "7 span(s) not taken by otlp_endpoint (refused)",
            ),
            (
                {"trace": "payload"},
                {"payload": {"files": 4, "tensors": 4, "bytes": 128, "tensors_dropped": 3, "bytes_dropped": 96}},
                "3 tensor(s) not kept, since payload_max_bytes was reached",
            ),
            ({"trace": "layer"}, {"tensors_skipped": {"sparse": {"count": 1}, "meta": {}}}, "tensors not read: sparse"),
            ({}, {"warnings": ["one", "two", "one"]}, "2 warning(s): one"),
            (
                {},
                {"files": {"spans": {"written": 41, "dropped": 5}, "steps": {"written": 4, "dropped": 0}}},
                "5 line(s) of spans dropped, since the file was filling up",
            ),
        ],
    )
    def test_what_is_told_beside_it(
        self, place: Path, config: Mapping[str, Any], summary: Mapping[str, Any], note: str
    ) -> None:
        write(place, config=config, summary=summary)
        verdict, reason = told(place, config)
        assert (verdict, note in reason) == (Verdict.CAPTURED, True), reason

    def test_a_word_of_steps_that_one_of_two_ranks_meets(self, place: Path) -> None:
        config = {"steps": ("head",)}
        write(place, ranks=2, config=config, by_rank={0: {"unmatched_steps": ["head"]}})
        verdict, reason = told(place, config)
        assert (verdict, "steps: nothing matches 'head' on rank(s) 0" in reason) == (Verdict.CAPTURED, True)


class TestUnattached:
    @pytest.mark.parametrize(
        ("summary", "why"),
        [
            ({**UNSEEN, "modules_built": 0}, "the program built no PyTorch model itself"),
            (UNSEEN, "the program built PyTorch modules but called none of them"),
            (
                {**UNSEEN, "opaque_names": ["h.0", "h.1"]},
                f"no call of a model was seen: {OPAQUE}",
            ),
            ({"steps_seen": 0}, "hooks stood on 9 module(s) of rank 0, but the model was never called"),
            ({"called_count": 0}, "hooks stood on 9 module(s) of rank 0, but none of them was seen to be called"),
            ({**UNSEEN, "hook_errors": 2, "first_hook_error": "KeyError: 1"}, "2 exception(s) in hooks, the first of"),
        ],
    )
    def test_nothing_was_called(self, place: Path, summary: Mapping[str, Any], why: str) -> None:
        write(place, summary=summary, step_lines=[], spans=[])
        verdict, reason = told(place)
        assert (verdict, why in reason) == (Verdict.UNATTACHED, True), reason

    def test_no_tensor_could_be_read(self, place: Path) -> None:
        config = {"trace": "layer"}
        write(place, config=config, stats=[], summary={"opaque_names": ["h.0"]})
        verdict, reason = told(place, config)
        assert verdict is Verdict.UNATTACHED
        assert reason.startswith("rank 0 ran 4 step(s), but no module passed a readable tensor: torch.compile")


class TestMisapplied:
    @pytest.mark.parametrize(
        ("asked", "why"),
        [
            ({"trace": "layer"}, "trace in force is basic, asked for layer"),
            ({"steps": ("a", "b")}, "steps in force is nothing, asked for a,b"),
            ({"cv_threshold": 0.5}, "cv_threshold in force is 0.15, asked for 0.5"),
            ({"interval": 7}, "interval in force is 100, asked for 7"),
        ],
    )
    def test_other_options_were_in_force(self, place: Path, asked: Mapping[str, Any], why: str) -> None:
        write(place)
        assert told(place, asked) == (Verdict.MISAPPLIED, f"summary_rank0.json: {why}")

    def test_an_option_that_nobody_told_of(self, place: Path) -> None:
        write(place, summary={"config": {}})
        assert told(place)[0] is Verdict.MISAPPLIED

    def test_a_word_of_steps_that_matches_nothing(self, place: Path) -> None:
        config = {"steps": ("atention", "sample")}
        write(place, ranks=2, config=config, summary={"unmatched_steps": ["atention"]})
        verdict, reason = told(place, config)
        assert (verdict, "steps: nothing that ran matches 'atention'" in reason) == (Verdict.MISAPPLIED, True)


class TestIncomplete:
    @pytest.mark.parametrize(
        ("summary", "why"),
        [
            ({"status": "running"}, "rank 0 died in step 4; evidence ends there"),
            ({"write_error": "No space left on device"}, "rank 0 could not write on: No space left on device"),
            (
                {"hook_errors": 3, "first_hook_error": "KeyError: 1"},
                "rank 0, by step 4: 3 exception(s) in hooks, the first of them KeyError: 1",
            ),
            (
                {"ended_by": "RuntimeError: boom"},
                "rank 0 ended in step 4 with RuntimeError: boom, before anything bad was seen",
            ),
            ({"world_size": 3}, "no evidence from rank(s) 1, 2 of 3"),
            ({"steps_seen": 6}, "rank 0: 2 of 6 steps have no line"),
            ({"steps_seen": 6, "status": "ended"}, "rank 0 ended in step 6 with exit, before anything bad was seen"),
        ],
    )
    def test_a_process_of_which_something_is_lacking(self, place: Path, summary: Mapping[str, Any], why: str) -> None:
        write(place, summary=summary)
        assert told(place) == (Verdict.INCOMPLETE, why)

    def test_a_signal_that_somebody_noted(self, place: Path) -> None:
        write(place, summary={"status": "running"})
        (place / "sigterm_rank0.txt").write_text('  File "/x/train.py", line 7 in step\n')
        assert told(place) == (
            Verdict.INCOMPLETE,
            "rank 0 ended in step 4 with signal SIGTERM in train.py:7 (step), before anything bad was seen",
        )

    def test_a_process_that_died_while_it_wrote(self, place: Path) -> None:
        write(place, summary={"status": "running"})
        path = place / "steps_rank0.jsonl"
        path.write_text(path.read_text()[:-9])
        edited = json.loads((place / "summary_rank0.json").read_text())
        edited["files"]["steps"]["written"] = 3
        (place / "summary_rank0.json").write_text(json.dumps(edited))
        verdict, reason = told(place)
        assert (verdict, "died while it wrote, in step 4" in reason) == (Verdict.INCOMPLETE, True)

    def test_bricks_that_were_not_timed(self, place: Path) -> None:
        config = {"profile": "deferred"}
        write(place, config=config, summary={"profile_excluded": "a CUDA graph was replayed"})
        assert told(place, config) == (Verdict.INCOMPLETE, "rank 0: profile: a CUDA graph was replayed")
        write(place, config=config, bricks=[])
        assert told(place, config) == (Verdict.INCOMPLETE, "rank 0 ran 4 step(s), but no brick was timed")

    def test_tensors_of_which_nothing_is_said(self, place: Path) -> None:
        config = {"trace": "payload"}
        write(place, config=config, summary={"payload": None})
        assert told(place, config)[0] is Verdict.INCOMPLETE

    def test_a_missing_rank_is_named_where_the_host_knows_of_it(self, place: Path) -> None:
        write(place, summary={"world_size": 1})
        assert told(place, world_size=2) == (Verdict.INCOMPLETE, "no evidence from rank(s) 1 of 2")

    def test_lines_without_a_summary(self, place: Path) -> None:
        write(place, ranks=2, summary={"world_size": 1})
        (place / "summary_rank1.json").unlink()
        verdict, reason = told(place)
        assert verdict is Verdict.INCOMPLETE
        assert reason.startswith("spans_rank1.jsonl has no summary beside it")

    def test_a_fork_that_trained(self, place: Path) -> None:
        write(place)
        (place / "unobserved_p7.json").write_text(json.dumps({"run_id": RUN_ID, "pid": 7}))
        verdict, reason = told(place)
        assert (verdict, "process 7, forked by an observed one, trained a model" in reason) == (
            Verdict.INCOMPLETE,
            True,
        )

    def test_all_of_the_last_attempt_called_no_model(self, place: Path) -> None:
        later = {**UNSEEN, "launcher": "1", "restart": 1}
        write(place, ranks=2, summary={"launcher": "1"}, by_rank={1: later})
        verdict, reason = told(place)
        assert verdict is Verdict.INCOMPLETE
        assert reason.startswith("the workers of restart 1 called no model")
