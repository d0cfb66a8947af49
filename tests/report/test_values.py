"""What a report shows: which trials in detail, which tensor, and that few values still hold the worst of many."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aorta_collectors.analysis.database import Database
from aorta_collectors.analysis.report import MOST_DETAILS
from aorta_collectors.analysis.report.charts import heat_map, run_up
from aorta_collectors.analysis.report.points import Points
from aorta_collectors.analysis.search import captures_below
from aorta_collectors.report.html import sentences
from tests.captured.sweeps import trial
from tests.captured.synthetic import record, write
from tests.report.support import report_below
from tests.support import run


def growing(last: int, bad_at: int | None = None, layer: str = "a") -> dict[int, list[dict[str, object]]]:
    """One rank, a magnitude that doubles in each step, and a NaN from some step on."""
    return {
        0: [
            record(step, layer, high=2.0**step, nans=int(bad_at is not None and step >= bad_at)) for step in range(last)
        ]
    }


def test_the_overflow_is_found_with_what_led_there_and_the_cell_without_it(captured: Callable[[str], Path]) -> None:
    report = report_below(captured("overflow"))
    lead, other = report.details
    assert (lead.row.of.trial.cell, other.row.of.trial.cell) == ("none-none", "clip_gradients-none")
    assert lead.focus is not None
    assert lead.at_fault
    assert (lead.focus.layer, lead.focus.role) == ("over_arch.model.1", "igrad")
    first = next(point for point in lead.run_up[0].points if point.kind)
    assert (first.step, first.kind) == (18, "huge")
    before = [point.magnitude for point in lead.run_up[0].points if point.step < 18]
    assert len(before) == 10
    assert None not in before
    assert before == sorted(before)
    assert [line.label for line in report.cells_line] == ["none-none", "clip_gradients-none"]
    assert [row.host for row in report.rows] == ["fail", "pass", "fail"]
    assert lead.facts.again is not None
    assert "-m aorta_collectors.layer_numerics" in lead.facts.again


def test_the_host_takes_the_command_that_runs_the_sweep_again(captured: Callable[[str], Path], tmp_path: Path) -> None:
    again = report_below(captured("overflow")).sweep_again
    assert again is not None
    aorta, sweep, run_, *rest = shlex.split(again)
    assert "no_collectors-none" in run([aorta, sweep, run_, "--dry-run", *rest], tmp_path).ok().out


def test_no_name_of_a_variable_is_a_command(tmp_path: Path) -> None:
    folder = trial(tmp_path, "none-x", growing(3))
    (record_file,), (receipt,) = folder.glob("trial_*.json"), folder.glob("receipt_*.json")
    record_file.write_text(json.dumps({"config": {"_aorta_trial_env": {"touch x;A": "1", "B": "a b"}}}))
    launch = {"argv": ["python", "-m", "aorta_collectors.frontend", "p.py"], "env": {}}
    receipt.write_text(json.dumps({**json.loads(receipt.read_text()), "launch": launch}))
    (detail,) = report_below(tmp_path).details
    assert detail.facts.again == "B='a b' NANLOG_DIR=nanlog_out python -m aorta_collectors.layer_numerics p.py"


def test_of_two_attempts_the_bad_ones_own_magnitudes_are_shown(tmp_path: Path) -> None:
    out = write(tmp_path / "out", {0: [record(step, high=1000.0) for step in range(1, 9)]})
    other = write(tmp_path / "other", growing(9, 6), {0: {"restart": 1, "pid": 7}})
    for name in ("layers_rank0{}.jsonl", "summary_rank0{}.json"):
        (other / name.format("")).rename(out / name.format("_p7"))
    report = report_below(out)
    (detail,) = report.details
    assert [point.magnitude for point in detail.run_up[0].points] == [2.0**step for step in range(9)]
    assert f"{out}, rank 0, attempt 1." in list(sentences.starts(report))
    assert detail.heat is not None
    assert detail.heat.magnitudes[0][1:3] == (1000.0, 1000.0)


def test_a_followed_tensor_has_a_row_for_each_place_in_the_order_of_its_way(captured: Callable[[str], Path]) -> None:
    (detail,) = report_below(captured("pipeline")).details
    assert detail.heat is not None
    places = [first.place for first, _, _ in detail.heat.rows]
    assert places == ["copy", "sparse_start", "sparse_wait", "forward"]
    # The batch goes on by a place in each step, and the NaN with it.
    diagonal = sorted((row, detail.heat.columns[column][0]) for row, column, *_ in detail.heat.bad)
    assert diagonal == [(0, 4), (1, 5), (2, 6), (3, 7)]


def test_of_many_cells_the_telling_ones_are_shown_and_all_are_listed(tmp_path: Path) -> None:
    trial(tmp_path, "none-x", growing(9, 6), passed=False)
    for index in range(MOST_DETAILS + 3):
        trial(tmp_path, f"same{index}-x", growing(9, 6), passed=False)
    trial(tmp_path, "gone-x", growing(9))
    report = report_below(tmp_path)
    assert len(report.rows) == MOST_DETAILS + 5
    assert len(report.details) == MOST_DETAILS
    assert [detail.row.of.trial.cell for detail in report.details[:2]] == ["none-x", "gone-x"]


def test_of_several_trials_and_runs_it_is_told_how_many_are_bad(tmp_path: Path) -> None:
    for index, bad in enumerate((None, 7, 3)):
        trial(tmp_path, "none-x", growing(9, bad), index=index)
    assert list(sentences.differ(report_below(tmp_path))) == ["Bad in 2 of 3 trials."]
    for index in range(3):
        trial(tmp_path, "gone-x", growing(9), index=index)
    told = "It is gone in gone-x (the baseline was seen bad in 2 of 3 trials)."
    assert list(sentences.differ(report_below(tmp_path))) == [told]


def test_a_trial_that_runs_is_clean_so_far(tmp_path: Path) -> None:
    write(tmp_path / "out", growing(9), {0: {"status": "running"}})
    assert sentences.headline(report_below(tmp_path / "out")) == "Nothing bad in 1 observed trial so far"


def test_what_is_bad_leads_also_where_the_baseline_lacks_evidence(tmp_path: Path) -> None:
    trial(tmp_path, "none-x", growing(9), verdict="incomplete")
    trial(tmp_path, "other-x", growing(9, 6), passed=False)
    report = report_below(tmp_path)
    assert [detail.row.of.trial.cell for detail in report.details] == ["other-x", "none-x"]
    assert [line.label for line in report.cells_line] == ["other-x", "none-x"]


def test_ranks_are_told_apart_the_bad_one_first(tmp_path: Path) -> None:
    write(tmp_path / "out", {rank: growing(9, 5 if rank == 2 else None)[0] for rank in range(3)})
    (detail,) = report_below(tmp_path / "out").details
    assert [(rank.rank, rank.first_bad, rank.bad_records) for rank in detail.ranks] == [
        (2, 5, 4),
        (0, None, 0),
        (1, None, 0),
    ]
    assert detail.by_rank[0].label == "rank 2"
    assert detail.heat is not None
    assert {cell[-1] for cell in detail.heat.bad} == {2}


def test_a_summary_alone_is_a_report_without_charts(tmp_path: Path) -> None:
    write(tmp_path / "out", growing(9, 5))
    (tmp_path / "out" / "layers_rank0.jsonl").unlink()
    report = report_below(tmp_path / "out")
    (detail,) = report.details
    assert (detail.focus, detail.heat, detail.run_up) == (None, None, ())
    assert detail.row.fault is not None
    assert detail.row.fault["step"] == 5


STEPS = st.dictionaries(
    st.tuples(st.integers(0, 40), st.sampled_from("abcde")),
    st.tuples(st.floats(1e-3, 1e30), st.sampled_from(["", "nans", "infs", "huge"])),
    min_size=1,
    max_size=60,
)


@settings(deadline=None, max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=STEPS, columns=st.integers(1, 12), rows=st.integers(1, 6))
def test_no_bad_value_and_no_extreme_is_lost_by_binning(
    tmp_path: Path, values: dict[tuple[int, str], tuple[float, str]], columns: int, rows: int
) -> None:
    records = [
        record(step, layer, seq=ord(layer), high=high, **({kind: 1} if kind else {}))  # type: ignore[arg-type]
        for (step, layer), (high, kind) in sorted(values.items())
    ]
    captures = captures_below(write(tmp_path / "out", {0: records}))
    with Database(captures) as database:
        points = Points(database, captures.trials)
        heat = heat_map(points, 0, columns, rows)
        assert heat is not None
        assert len(heat.columns) <= columns
        assert len(heat.rows) <= rows
        layers = sorted({layer for _, layer in values})
        assert sum(count for _, _, count in heat.rows) == len(layers)
        bad = {(row, column): cell[2] for row, column, *_ in heat.bad for cell in heat.bad if cell[:2] == (row, column)}
        expected: dict[tuple[int, int], tuple[float, int]] = {}
        for (step, layer), (high, kind) in values.items():
            (column,) = [i for i, (first, last) in enumerate(heat.columns) if first <= step <= last]
            (row,) = [i for i, (first, last, _) in enumerate(heat.rows) if first.layer <= layer <= last.layer]
            severity = {"": 0, "huge": 2, "infs": 3, "nans": 4}[kind]
            before = expected.get((row, column), (0.0, 0))
            expected[row, column] = max(before[0], high), max(before[1], severity)
        assert bad == {place: severity for place, (_, severity) in expected.items() if severity}
        shown = {
            (i, j): value for i, line in enumerate(heat.magnitudes) for j, value in enumerate(line) if value is not None
        }
        assert shown == {place: high for place, (high, _) in expected.items()}


def test_a_long_line_keeps_its_extremes_and_every_step_near_the_bad_one(tmp_path: Path) -> None:
    last, bad = 5000, 4000
    high = {step: 1.0 + step % 7 for step in range(last)} | {123: 1e6, 321: 1e-6}
    # The last two are in one bin, neither the worst nor the first of which may go.
    records = [
        record(step, high=high[step], nans=int(step in (bad, 4702)), huge=int(step == 4700)) for step in range(last)
    ]
    captures = captures_below(write(tmp_path / "out", {0: records}))
    with Database(captures) as database:
        points = Points(database, captures.trials)
        (focus,) = points.series("tid = 0", [])
        (line,) = run_up(points, 0, focus, bad, 0)
    shown = {point.step: point for point in line.points}
    assert len(shown) < 800
    assert {123, 321, bad, 4700, 4702} <= set(shown)
    assert set(range(bad - 100, bad + 100)) <= set(shown)
    assert all(shown[step].magnitude == high[step] for step in shown)
