"""What a cell says against the baseline: moved, removed, or that nothing can be said."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aorta_collectors.analysis.database import Database
from aorta_collectors.analysis.first_bad import first_bad
from aorta_collectors.analysis.mitigations import OfCell, Outcome, across_cells
from aorta_collectors.analysis.search import captures_below
from tests.captured.sweeps import trial
from tests.captured.synthetic import Record, record


def steps(last: int, bad_at: int | None = None, layer: str = "a") -> dict[int, list[Record]]:
    """One rank: a record in each step up to the last, of which one may hold a NaN."""
    return {0: [record(step, layer, nans=int(step == bad_at)) for step in range(1, last + 1)]}


def compared(path: Path) -> dict[str, OfCell]:
    captures = captures_below(path)
    with Database(captures) as database:
        return {cell.cell: cell for cell in across_cells(captures.path, first_bad(captures, database))}


def outcomes(path: Path) -> dict[str, tuple[Outcome | None, int | None]]:
    return {name: (cell.outcome, cell.steps_later) for name, cell in compared(path).items()}


def test_each_outcome_has_its_name(tmp_path: Path) -> None:
    trial(tmp_path, "none-local", steps(9, 5))
    trial(tmp_path, "as_before-local", steps(9, 5))
    trial(tmp_path, "earlier-local", steps(9, 3))
    trial(tmp_path, "later-local", steps(9, 7))
    trial(tmp_path, "elsewhere-local", steps(9, 5, "b"))
    trial(tmp_path, "removed-local", steps(5))
    trial(tmp_path, "short-local", steps(4))
    trial(tmp_path, "off-local", None, verdict="off")
    trial(tmp_path, "running-local", steps(9), verdict=None)
    trial(tmp_path, "stale-local", steps(9), verdict="stale")
    assert outcomes(tmp_path) == {
        "none-local": (Outcome.BASELINE, None),
        "as_before-local": (Outcome.SAME, 0),
        "earlier-local": (Outcome.EARLIER, -2),
        "later-local": (Outcome.LATER, 2),
        "elsewhere-local": (Outcome.ELSEWHERE, 0),
        "removed-local": (Outcome.REMOVED, None),
        "short-local": (Outcome.NOT_REACHED, None),
        "off-local": (Outcome.NO_EVIDENCE, None),
        "running-local": (Outcome.NO_EVIDENCE, None),
        "stale-local": (Outcome.NO_EVIDENCE, None),
    }
    found = compared(tmp_path)
    assert found["short-local"].why == "seen up to step 4, the baseline goes bad in step 5"
    assert found["off-local"].why == "trial 0 is off"
    assert found["running-local"].why == "trial 0 is not verified"


def test_a_cell_that_is_bad_without_verified_evidence_is_bad_all_the_same(tmp_path: Path) -> None:
    trial(tmp_path, "none-local", steps(9, 5))
    trial(tmp_path, "as_before-local", steps(9, 5), verdict="incomplete")
    trial(tmp_path, "later-local", steps(9, 6), verdict="incomplete")
    found = compared(tmp_path)
    assert found["as_before-local"].outcome is Outcome.SAME
    later = found["later-local"]
    assert (later.outcome, later.steps_later, later.why) == (Outcome.UNDECIDED, 1, "trial 0 is incomplete")


def test_moved_takes_every_trial_that_may_have_been_bad_before(tmp_path: Path) -> None:
    trial(tmp_path, "none-local", steps(9, 5))
    trial(tmp_path, "one_is_missing-local", steps(9, 7))
    trial(tmp_path, "one_is_missing-local", None, index=1, verdict="missing")
    trial(tmp_path, "one_is_short-local", steps(9, 7))
    trial(tmp_path, "one_is_short-local", steps(4), index=1)
    trial(tmp_path, "one_is_clean-local", steps(9, 7))
    trial(tmp_path, "one_is_clean-local", steps(5), index=1)
    found = compared(tmp_path)
    assert {name: (cell.outcome, cell.why) for name, cell in found.items()} == {
        "none-local": (Outcome.BASELINE, ""),
        "one_is_missing-local": (Outcome.UNDECIDED, "trial 1 is missing"),
        "one_is_short-local": (Outcome.UNDECIDED, "trial 1 was seen up to step 4"),
        "one_is_clean-local": (Outcome.LATER, ""),
    }


def test_earlier_takes_every_trial_of_the_baseline(tmp_path: Path) -> None:
    trial(tmp_path, "none-local", steps(9, 7))
    trial(tmp_path, "none-local", None, index=1, verdict="missing")
    trial(tmp_path, "fix-local", steps(9, 3))
    found = compared(tmp_path)["fix-local"]
    assert (found.outcome, found.why) == (Outcome.UNDECIDED, "of the baseline: trial 1 is missing")


@pytest.mark.parametrize(
    ("config", "bad_at", "outcome", "why"),
    [
        ({"groups": ["fc"]}, None, Outcome.UNDECIDED, "groups"),
        ({"huge_threshold": 1e5}, 7, Outcome.UNDECIDED, "huge_threshold"),
        ({"huge_threshold": 1e5}, 5, Outcome.SAME, ""),
        ({"pre_context": 10}, None, Outcome.REMOVED, ""),
    ],
)
def test_cells_that_are_observed_otherwise_are_not_compared(
    tmp_path: Path, config: dict[str, Any], bad_at: int | None, outcome: Outcome, why: str
) -> None:
    of_baseline = {"groups": ["*"], "huge_threshold": 1e10, "pre_context": 0}
    trial(tmp_path, "none-local", steps(9, 5), summaries={0: {"config": of_baseline}})
    trial(tmp_path, "fix-local", steps(9, bad_at), summaries={0: {"config": {**of_baseline, **config}}})
    found = compared(tmp_path)["fix-local"]
    assert (found.outcome, found.why) == (outcome, why and f"observed otherwise than the baseline: {why}")


def test_removed_takes_every_trial_and_every_rank(tmp_path: Path) -> None:
    trial(tmp_path, "none-local", steps(9, 5))
    trial(tmp_path, "one_is_stale-local", steps(9))
    trial(tmp_path, "one_is_stale-local", steps(9), index=1, verdict="stale")
    trial(tmp_path, "one_is_short-local", steps(9))
    trial(tmp_path, "one_is_short-local", steps(4), index=1)
    trial(tmp_path, "a_rank_is_short-local", {0: steps(9)[0], 1: steps(4)[0]})
    trial(tmp_path, "a_rank_is_idle-local", {0: steps(9)[0], 1: []})
    found = compared(tmp_path)
    assert found["one_is_stale-local"].outcome is Outcome.NO_EVIDENCE
    assert found["one_is_stale-local"].why == "clean in 1 of 2 trials; trial 1 is stale"
    assert found["one_is_short-local"].outcome is Outcome.NOT_REACHED
    assert found["a_rank_is_short-local"].outcome is Outcome.NOT_REACHED
    assert found["a_rank_is_idle-local"].outcome is Outcome.REMOVED


def test_evaluations_are_no_steps_that_were_covered(tmp_path: Path) -> None:
    trial(tmp_path, "none-local", steps(9, 5))
    trial(tmp_path, "fix-local", steps(9), summaries={0: {"evaluation_steps": 5}})
    assert outcomes(tmp_path)["fix-local"] == (Outcome.NOT_REACHED, None)


def test_of_several_trials_the_ranges_are_compared(tmp_path: Path) -> None:
    for index, (baseline, within, after) in enumerate([(4, 5, 9), (6, 3, 8)]):
        trial(tmp_path, "none-local", steps(9, baseline), index=index)
        trial(tmp_path, "within-local", steps(9, within), index=index)
        trial(tmp_path, "after-local", steps(9, after), index=index)
    trial(tmp_path, "short-local", steps(5))
    assert outcomes(tmp_path) == {
        "none-local": (Outcome.BASELINE, None),
        "within-local": (Outcome.SAME, -1),
        "after-local": (Outcome.LATER, 4),
        "short-local": (Outcome.NOT_REACHED, None),  # a trial of the baseline was clean that far
    }


def test_of_a_baseline_that_is_not_always_bad_that_is_said(tmp_path: Path) -> None:
    trial(tmp_path, "none-local", steps(9, 5))
    trial(tmp_path, "none-local", steps(9), index=1)
    trial(tmp_path, "fix-local", steps(9))
    found = compared(tmp_path)["fix-local"]
    assert (found.outcome, found.why) == (Outcome.REMOVED, "the baseline was seen bad in 1 of 2 trials")


def test_against_a_clean_baseline_what_is_bad_appears(tmp_path: Path) -> None:
    trial(tmp_path, "none-local", steps(9))
    trial(tmp_path, "worse-local", steps(9, 5))
    trial(tmp_path, "equal-local", steps(9))
    trial(tmp_path, "beyond-local", steps(12, 11))
    assert outcomes(tmp_path)["worse-local"] == (Outcome.APPEARS, None)
    assert outcomes(tmp_path)["beyond-local"] == (Outcome.UNDECIDED, None)
    assert outcomes(tmp_path)["equal-local"] == (Outcome.CLEAN, None)


def test_nothing_is_said_against_a_baseline_without_evidence(tmp_path: Path) -> None:
    trial(tmp_path, "none-local", None, verdict="missing")
    trial(tmp_path, "bad-local", steps(9, 5))
    trial(tmp_path, "clean-local", steps(9))
    found = compared(tmp_path)
    for name in ("bad-local", "clean-local"):
        assert (found[name].outcome, found[name].why) == (Outcome.NO_EVIDENCE, "of the baseline: trial 0 is missing")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('{"baseline_cell": "later-local", "mean": NaN}', "later-local"),
        ('{"baseline_cell": "not there"}', "none-local"),
        ('{"baseline_cell": 7}', "none-local"),
        ("[]", "none-local"),
        ("{", "none-local"),
    ],
)
def test_the_baseline_is_the_matrixs_else_the_cell_without_mitigations(
    tmp_path: Path, content: str, expected: str
) -> None:
    trial(tmp_path, "later-local", steps(9, 7))
    trial(tmp_path, "none-local", steps(9, 5), mitigations=["none", "none"])
    (tmp_path / "matrix.json").write_text(content)
    assert [name for name, (outcome, _) in outcomes(tmp_path).items() if outcome is Outcome.BASELINE] == [expected]


def test_a_matrix_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    trial(run_dir, "later-local", steps(9, 7))
    trial(run_dir, "none-local", steps(9, 5))
    (tmp_path / "matrix").write_text('{"baseline_cell": "later-local"}')
    (run_dir / "matrix.json").symlink_to(tmp_path / "matrix")
    assert outcomes(run_dir)["none-local"] == (Outcome.BASELINE, None)


def test_sweeps_have_a_baseline_each(tmp_path: Path) -> None:
    for name, bad_at in (("first", 5), ("second", 7)):
        trial(tmp_path / name, "none-local", steps(9, bad_at))
        trial(tmp_path / name, "fix-local", steps(6))
        (tmp_path / name / "evidence.json").write_text("{}")  # no ledger, but where a sweep's directory is
    captures = captures_below(tmp_path)
    with Database(captures) as database:
        cells = across_cells(captures.path, first_bad(captures, database))
    assert [(cell.run, cell.cell, cell.outcome) for cell in cells] == [
        ("first", "none-local", Outcome.BASELINE),
        ("first", "fix-local", Outcome.REMOVED),
        ("second", "none-local", Outcome.BASELINE),
        ("second", "fix-local", Outcome.NOT_REACHED),
    ]


def test_pruned_evidence_counts_as_its_receipt_says(tmp_path: Path) -> None:
    trial(tmp_path, "none-local", None, verdict="pruned", metrics=pruned(9, 5))
    trial(tmp_path, "fix-local", None, verdict="pruned", metrics=pruned(9))
    trial(tmp_path, "later-local", None, verdict="pruned", metrics=pruned(9, 8))
    trial(tmp_path, "lost-local", None, verdict="pruned")
    behind = [{"state": "complete", "steps_seen": 9}, {"state": "complete", "steps_seen": 9, "evaluation_steps": 5}]
    trial(tmp_path, "a_rank_is_short-local", None, verdict="pruned", metrics=pruned(9), processes=behind)
    idle = [{"state": "complete", "steps_seen": 9}, {"state": "no model", "steps_seen": 0}]
    idle += [{"state": "superseded", "steps_seen": 2}]
    trial(tmp_path, "a_rank_is_idle-local", None, verdict="pruned", metrics=pruned(9), processes=idle)
    assert outcomes(tmp_path) == {
        "none-local": (Outcome.BASELINE, None),
        "fix-local": (Outcome.REMOVED, None),
        "later-local": (Outcome.LATER, 3),
        "lost-local": (Outcome.NO_EVIDENCE, None),
        "a_rank_is_short-local": (Outcome.NOT_REACHED, None),
        "a_rank_is_idle-local": (Outcome.REMOVED, None),
    }


def pruned(steps_seen: int, bad_at: int | None = None) -> dict[str, Any]:
    metrics: dict[str, Any] = {"layer_numerics_steps": steps_seen}
    if bad_at is not None:
        place = {"step": bad_at, "layer": "a", "direction": "fwd", "kind": "nan", "rank": 0}
        metrics |= {f"layer_numerics_first_bad_{name}": value for name, value in place.items()}
    return metrics


#: Of a trial: its last step, where it is bad (beyond the last step: nowhere), and its verdict.
TRIAL = st.tuples(st.integers(1, 6), st.integers(1, 9), st.sampled_from(["captured", "incomplete", "off", "missing"]))


@settings(max_examples=25, deadline=None)
@given(st.lists(TRIAL, min_size=1, max_size=3), st.lists(TRIAL, min_size=1, max_size=3))
def test_nothing_is_removed_that_was_not_looked_for(
    tmp_path_factory: pytest.TempPathFactory, baseline: list[tuple[int, int, str]], fix: list[tuple[int, int, str]]
) -> None:
    run_dir = tmp_path_factory.mktemp("run")
    for cell, of_cell in (("none-local", baseline), ("fix-local", fix)):
        for index, (last, bad_at, verdict) in enumerate(of_cell):
            left = steps(last, bad_at) if verdict in ("captured", "incomplete") else None
            trial(run_dir, cell, left, index=index, verdict=verdict)
    needed = max((bad for last, bad, verdict in baseline if bad <= last and verdict in LEFT), default=None)
    proven = all(verdict == "captured" and bad > last >= (needed or 0) for last, bad, verdict in fix)
    assert (outcomes(run_dir)["fix-local"][0] is Outcome.REMOVED) == (needed is not None and proven)


LEFT = ("captured", "incomplete")


def test_a_real_sweep_names_the_mitigation_that_removes_the_nan(captured: Callable[[str], Path]) -> None:
    found = compared(captured("mitigations"))
    assert [cell.mitigations for cell in found.values() if cell.outcome is Outcome.REMOVED] == [("fp32_scores",)]
    assert found["none-none"].outcome is Outcome.BASELINE
    assert all(cell.bad for name, cell in found.items() if name != "fp32_scores-none")
