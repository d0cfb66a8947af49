"""How a script did, from how it ended and what collectors saw."""

from __future__ import annotations

from typing import Any

import pytest
from aorta.workloads import WorkloadResult

from aorta_collectors.api import Verdict, Verification
from aorta_collectors.evidence.trial import Checked
from aorta_collectors.workloads.config import ScriptConfig
from aorta_collectors.workloads.verdict import Ending, judge

NAN = {"_step": 7, "_layer": "head", "_kind": "nan", "_rank": 1}
HUGE = {"_step": 5, "_layer": "body", "_kind": "huge", "_rank": 0}


def checked(verdict: Verdict = Verdict.CAPTURED, times: tuple[float, ...] = (), **metrics: Any) -> Checked:
    return Checked(Verification(verdict, "as it is"), metrics=metrics, step_times_ms=times)


def named(prefix: str, fields: dict[str, Any]) -> dict[str, Any]:
    return {prefix + name: value for name, value in fields.items()}


def judged(*evidence: Checked, exit_code: int = 0, timed_out: bool = False, **config: Any) -> WorkloadResult:
    script = ScriptConfig(("python", "train.py"), "/", **config)
    return judge(script, Ending(exit_code, timed_out, 2.5, ["last"]), evidence)


def types(result: WorkloadResult) -> list[str]:
    return [detail["type"] for detail in result.failure_details]


def test_a_script_that_exits_with_0_passes() -> None:
    found = judged()
    assert (found.passed, found.failure_count, found.failure_details) == (True, 0, [])
    assert (found.elapsed_sec, found.metrics) == (2.5, {"script_exit_code": 0})
    assert (found.main_work_started, found.executed_iterations, found.step_times_ms) == (None, None, [])


@pytest.mark.parametrize(
    ("exit_code", "timed_out", "kind", "says"),
    [
        (3, False, "ScriptExit", "the script exited with 3"),
        (-9, False, "ScriptSignal", "the script was killed by SIGKILL"),
        (-50, False, "ScriptSignal", "the script was killed by signal 50"),
        (-15, True, "ScriptTimeout", "the script was ended after timeout_s: 1.5 seconds"),
        (0, True, "ScriptTimeout", "the script was ended after timeout_s: 1.5 seconds"),
    ],
)
def test_any_other_end_fails_it(exit_code: int, timed_out: bool, kind: str, says: str) -> None:
    found = judged(exit_code=exit_code, timed_out=timed_out, timeout_s=1.5, fail_on=frozenset())
    assert not found.passed
    (detail,) = found.failure_details
    assert (detail["type"], detail["error"], detail["stderr_tail"]) == (kind, says, ["last"])


def test_what_a_collector_saw_fails_it_as_the_recipe_says() -> None:
    seen = checked(**named("probe_first_nonfinite", NAN), **named("probe_first_bad", HUGE))
    found = judged(seen)
    assert (types(found), found.first_failure_iteration) == (["NonFinite"], 7)
    assert found.failure_details[0]["collector"] == "probe"
    both = judged(seen, fail_on=frozenset({"nonfinite", "huge"}))
    assert (sorted(types(both)), both.failure_count, both.first_failure_iteration) == (["Huge", "NonFinite"], 2, 5)
    assert judged(seen, fail_on=frozenset()).passed


def test_a_first_bad_value_that_is_nan_is_not_huge() -> None:
    seen = checked(**named("probe_first_nonfinite", NAN), **named("probe_first_bad", NAN))
    assert types(judged(seen, fail_on=frozenset({"huge"}))) == []


def test_what_is_bad_by_design_fails_nothing() -> None:
    assert judged(checked(**named("probe_first_nonfinite", {**NAN, "_by_design": 1}))).passed


def test_an_exit_and_a_nan_are_both_told() -> None:
    found = judged(checked(**named("probe_first_nonfinite", NAN)), exit_code=1)
    assert types(found) == ["ScriptExit", "NonFinite"]


def test_steps_are_those_of_the_collector_that_saw_most() -> None:
    found = judged(checked(times=(1.0,), a_steps=2), checked(times=(1.0, 2.0), b_steps=3), steps=5)
    assert (found.executed_iterations, found.total_iterations, found.configured_iterations) == (3, 3, 5)
    assert found.step_times_ms == [1.0, 2.0]
    assert found.main_work_started is True


@pytest.mark.parametrize(
    ("verdict", "exit_code", "started"),
    [
        (Verdict.MISSING, 1, False),
        (Verdict.UNATTACHED, 1, False),
        (Verdict.UNATTACHED, 0, None),
        (Verdict.INVALID, 1, None),
    ],
)
def test_a_script_that_died_before_a_step_did_not_begin_its_work(
    verdict: Verdict, exit_code: int, started: bool | None
) -> None:
    assert judged(checked(verdict), exit_code=exit_code).main_work_started is started
