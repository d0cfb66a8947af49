"""Each verdict on what memory left: synthetic captures, changed in one way each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from aorta_collectors.api import Verdict
from aorta_collectors.memory.config import Config
from aorta_collectors.schema_check import first_error
from tests.memory.snapshots import MIB
from tests.memory.synthetic import RUN_ID, check, default_points, device, host, pool, told, write
from tests.support import records

STEP = ("before_forward", "after_forward", "after_backward", "after_step")
IDLE: dict[str, Any] = {"roots": [], "steps_seen": 0, "points": {}}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "trial" / "memory"


class TestCaptured:
    @pytest.mark.parametrize(
        "config",
        [{}, {"points": ("after_step",)}, {"steps": ("2", "4-")}, {"detail": "totals", "stacks": 0, "scope": ("a.*",)}],
    )
    def test_what_each_set_of_options_asks_for(self, place: Path, config: Mapping[str, Any]) -> None:
        write(place, config=config, devices=[device()])
        points = len(default_points(4, Config.of(config)))
        assert told(place, config) == (Verdict.CAPTURED, f"{points} point(s) over 4 step(s), 1 rank(s)")

    def test_two_ranks_and_what_the_receipt_says_of_them(self, place: Path) -> None:
        write(place, ranks=2, devices=[device()])
        found = check(place, world_size=2)
        assert (found.verdict, found.reason) == (Verdict.CAPTURED, "32 point(s) over 4 step(s), 2 rank(s)")
        processes = found.details["processes"]
        assert [(process["files"], process["state"]) for process in processes] == [
            ("rank0", "complete"),
            ("rank1", "complete"),
        ]
        assert processes[1]["points"] == dict.fromkeys(STEP, 4)
        assert processes[1]["devices"]["cuda:0"]["peak_reserved"] == 40 * MIB
        json.dumps(found.details)

    def test_what_is_made_up_here_fits_the_schemas(self, place: Path) -> None:
        write(place, devices=[device()])
        assert first_error("memory.summary", json.loads((place / "summary_rank0.json").read_text())) is None
        for line in records(place / "memory_rank0.jsonl"):
            assert first_error("memory.point", line) is None

    @pytest.mark.parametrize(
        ("summary", "note"),
        [
            ({"history": {"host": "state only", "cuda:0": "recorded"}}, "state only, without stacks, of host"),
            ({"steps_left_out": 7}, "7 step(s) not looked at, since the file was filling up"),
            ({"warnings": ["one", "two", "one"]}, "2 warning(s): one"),
            (
                {"files": {"memory": {"written": 16, "dropped": 3}, "growth": {"written": 0, "dropped": 0}}},
                "3 point(s) dropped, since the file was full",
            ),
        ],
    )
    def test_what_a_reader_should_know(self, place: Path, summary: Mapping[str, Any], note: str) -> None:
        write(place, summary=summary)
        assert told(place) == (Verdict.CAPTURED, f"16 point(s) over 4 step(s), 1 rank(s); {note}")

    def test_a_point_of_the_default_that_a_program_does_not_have(self, place: Path) -> None:
        lines = [line for line in default_points(4, Config()) if line["point"] != "after_step"]
        lines = [{**line, "order": order} for order, line in enumerate(lines)]
        write(place, points=lines)
        verdict, reason = told(place)
        assert verdict is Verdict.CAPTURED
        assert reason.endswith("; after_step never came: no optimizer of torch stepped")

    def test_steps_that_lack_what_came_in_another(self, place: Path) -> None:
        """Threads that train at once, and a forward pass that an exception ends."""
        steps = {0: 1, 4: 1, 1: 2, 5: 2}
        lines = default_points(4, Config())
        for order, step in steps.items():
            lines[order] = {**lines[order], "step": step}
        lines = [line for order, line in enumerate(lines) if order != 9]
        write(place, points=[{**line, "order": order} for order, line in enumerate(lines)])
        assert told(place) == (Verdict.CAPTURED, "15 point(s) over 4 step(s), 1 rank(s)")

    def test_a_hook_that_failed_says_more_than_the_gap_that_it_left(self, place: Path) -> None:
        lines = default_points(4, Config())
        del lines[5]
        write(place, points=lines, summary={"hook_errors": 1, "first_hook_error": "RecursionError"})
        assert told(place)[0] is Verdict.INCOMPLETE

    def test_a_system_that_tells_no_peak(self, place: Path) -> None:
        write(place, points=[{**line, "host": host(peak_rss=0)} for line in default_points(4, Config())])
        assert told(place)[0] is Verdict.CAPTURED

    def test_a_rank_without_a_model(self, place: Path) -> None:
        write(place, ranks=2, by_rank={1: IDLE})
        verdict, reason = told(place)
        assert (verdict, reason.endswith("rank(s) 1 built or called no model")) == (Verdict.CAPTURED, True)

    def test_a_scope_that_only_some_ranks_have(self, place: Path) -> None:
        config = {"scope": ("a.*",)}
        write(place, ranks=2, config=config, by_rank={1: {"unmatched_scope": ["a.*"]}})
        verdict, reason = told(place, config)
        assert (verdict, reason.endswith("scope: no module matches 'a.*' on rank(s) 1")) == (Verdict.CAPTURED, True)


class TestMissing:
    def test_nothing_at_all(self, place: Path) -> None:
        place.mkdir(parents=True)
        assert told(place)[0] is Verdict.MISSING

    def test_another_trial_s(self, place: Path) -> None:
        write(place)
        verdict, reason = told(place, run_ids=frozenset({"another"}))
        assert (verdict, f"run id {RUN_ID}" in reason) == (Verdict.STALE, True)


class TestInvalid:
    @pytest.mark.parametrize(
        ("changes", "why"),
        [
            ({"host": host(rss=2, peak_rss=1)}, "host: rss 2 is above peak_rss 1"),
            ({"devices": [device(active=41 * MIB)]}, f"cuda:0: active {41 * MIB} is above reserved {40 * MIB}"),
            ({"devices": [device(allocated=17 * MIB)]}, f"cuda:0: allocated {17 * MIB} is above active {16 * MIB}"),
            (
                {"devices": [device(inactive=MIB)]},
                f"cuda:0: inactive {MIB} is not reserved {40 * MIB} less active {16 * MIB}",
            ),
            (
                {"devices": [device(pools=[pool("private", reserved=7 * MIB)])]},
                f"cuda:0 pool 0,1: active {8 * MIB} is above reserved {7 * MIB}",
            ),
            (
                {"devices": [device(pools=[pool(largest_inactive=13 * MIB)])]},
                f"cuda:0 pool 0,0: largest_inactive {13 * MIB} is above inactive {12 * MIB}",
            ),
        ],
    )
    def test_numbers_that_contradict_each_other(self, place: Path, changes: Mapping[str, Any], why: str) -> None:
        lines = default_points(4, Config())
        lines[5] = {**lines[5], **changes}
        if "host" in changes:
            lines[5]["host"] = {**changes["host"], "anonymous": 0}
        write(place, points=lines)
        assert told(place) == (Verdict.INVALID, f"memory_rank0.jsonl: point 5, after_forward: {why}")

    def test_a_point_that_somebody_took_out(self, place: Path) -> None:
        lines = default_points(4, Config())
        del lines[5]
        write(place, points=lines)
        assert told(place) == (Verdict.INVALID, "memory_rank0.jsonl: point 5 is missing; after_backward is point 6")

    def test_lines_that_are_not_as_many_as_the_summary_says(self, place: Path) -> None:
        write(place)
        path = place / "memory_rank0.jsonl"
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
        assert told(place)[0] is Verdict.INVALID

    def test_points_of_another_kind_than_the_summary_says(self, place: Path) -> None:
        lines = default_points(4, Config())
        write(place, points=lines)
        content = json.loads((place / "summary_rank0.json").read_text())
        content["points"]["after_step"]["taken"] = 5
        (place / "summary_rank0.json").write_text(json.dumps(content))
        assert told(place) == (
            Verdict.INVALID,
            "memory_rank0.jsonl: 4 line(s) of after_step, but the summary says 5",
        )

    def test_a_file_of_growth_that_is_gone(self, place: Path) -> None:
        write(place)
        (place / "growth_rank0.jsonl").unlink()
        verdict, reason = told(place)
        assert (verdict, reason.startswith("growth_rank0.jsonl is missing")) == (Verdict.INVALID, True)

    def test_a_line_that_does_not_fit_its_schema(self, place: Path) -> None:
        lines = default_points(4, Config())
        del lines[3]["host"]["swap"]
        write(place, points=lines)
        verdict, reason = told(place)
        assert (verdict, "line 4: host: swap is missing" in reason) == (Verdict.INVALID, True)


class TestUnattached:
    def test_no_model_was_built(self, place: Path) -> None:
        write(place, points=[], summary={**IDLE, "modules_built": 0})
        verdict, reason = told(place)
        assert (verdict, reason.startswith("the program built no PyTorch model")) == (Verdict.UNATTACHED, True)

    def test_a_program_s_own_points_are_no_model(self, place: Path) -> None:
        line = {**default_points(1, Config())[0], "step": 0, "point": "user", "name": "user:here"}
        write(place, points=[line], summary={"roots": [], "steps_seen": 0, "modules_built": 0})
        verdict, reason = told(place)
        assert (verdict, reason.endswith("; there are only its own 1 point(s)")) == (Verdict.UNATTACHED, True)


class TestMisapplied:
    @pytest.mark.parametrize(
        ("asked", "why"),
        [
            ({"detail": "totals"}, "detail in force is pools, asked for totals"),
            ({"steps": ("1-5",)}, "steps in force is nothing, asked for 1-5"),
            ({"stacks": 0}, "stacks in force is 10, asked for 0"),
        ],
    )
    def test_other_options_were_in_force(self, place: Path, asked: Mapping[str, Any], why: str) -> None:
        write(place)
        assert told(place, asked) == (Verdict.MISAPPLIED, f"summary_rank0.json: {why}")

    def test_a_scope_that_nothing_matches(self, place: Path) -> None:
        config = {"scope": ("layer.*", "head")}
        write(place, config=config, summary={"unmatched_scope": ["layer.*"]})
        verdict, reason = told(place, config)
        assert (verdict, "scope: no module matches 'layer.*'" in reason) == (Verdict.MISAPPLIED, True)


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
            ({"steps_seen": 6}, "rank 0: 6 step(s) began, and before_forward has 4 line(s)"),
        ],
    )
    def test_a_process_of_which_something_is_lacking(self, place: Path, summary: Mapping[str, Any], why: str) -> None:
        write(place, summary=summary)
        assert told(place) == (Verdict.INCOMPLETE, why)

    def test_a_point_that_was_asked_for_by_name_and_never_came(self, place: Path) -> None:
        config = {"points": ("before_forward", "after_step")}
        lines = default_points(4, Config(points=("before_forward",)))
        write(place, config=config, points=lines)
        assert told(place, config) == (
            Verdict.INCOMPLETE,
            "after_step never came: no optimizer of torch stepped",
        )

    def test_steps_that_the_run_did_not_come_to(self, place: Path) -> None:
        config = {"steps": ("9-",)}
        seen = {point: {"seen": 4, "taken": 0, "first": None, "last": None} for point in STEP}
        write(place, config=config, points=[], summary={"points": seen})
        assert told(place, config) == (
            Verdict.INCOMPLETE,
            "before_forward came in no step that steps: 9- asks for; there were 4 step(s)",
        )

    def test_modules_of_which_no_call_was_seen(self, place: Path) -> None:
        config = {"scope": ("h.*",)}
        hidden = {"called_count": 0, "unseen_names": ["h.0", "h.1"], "opaque_names": ["h.0", "h.1"]}
        write(place, config=config, summary=hidden)
        assert told(place, config) == (
            Verdict.INCOMPLETE,
            "scope: no module that it names was seen to be called, since torch.compile or TorchScript runs h.0, h.1",
        )
        write(place, config=config, summary={"called_count": 1, "unseen_names": ["h.1"]})
        verdict, reason = told(place, config)
        assert (verdict, reason.endswith("; no call seen of h.1")) == (Verdict.CAPTURED, True)

    def test_lines_without_a_summary(self, place: Path) -> None:
        write(place, ranks=2, summary={"world_size": 1})
        (place / "summary_rank1.json").unlink()
        verdict, reason = told(place)
        assert verdict is Verdict.INCOMPLETE
        assert "rank1.jsonl has no summary beside it" in reason

    def test_a_fork_that_trained(self, place: Path) -> None:
        write(place)
        (place / "unobserved_p7.json").write_text(json.dumps({"run_id": RUN_ID, "pid": 7}))
        verdict, reason = told(place)
        assert (verdict, "process 7, forked by an observed one" in reason) == (Verdict.INCOMPLETE, True)
