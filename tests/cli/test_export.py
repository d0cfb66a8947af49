"""`aorta-collectors export`: each format of a real sweep, whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.export.test_openmetrics import parse
from tests.export.test_trace import checked
from tests.support import Ran, run

pytestmark = pytest.mark.sweep


def _export(cwd: Path, source: Path, format_: str, *words: str) -> Ran:
    return run(["aorta-collectors", "export", str(source), "--format", format_, "-o", "out", *words], cwd)


def _rows(sql: str) -> list[tuple[object, ...]]:
    return duckdb.connect().execute(sql).fetchall()


def test_parquet_of_a_sweep_has_every_cell(captured: Callable[[str], Path], tmp_path: Path) -> None:
    made = json.loads(_export(tmp_path, captured("overflow"), "parquet", "--json").ok().out)
    assert made["num_files"] == 4
    assert made["num_bytes"] == sum(path.stat().st_size for path in (tmp_path / "out").iterdir())
    first = _rows(f"SELECT cell, min(step) FROM '{tmp_path}/out/records.parquet' WHERE bad GROUP BY cell")
    assert first == [("none-none", 18)]
    cells = _rows(f"SELECT count(DISTINCT cell) FROM '{tmp_path}/out/trials.parquet'")
    assert cells == [(3,)]


def test_a_trace_of_ranks_has_steps_counters_and_what_was_bad(captured: Callable[[str], Path], tmp_path: Path) -> None:
    _export(tmp_path, captured("ranks"), "trace", "--layer", "*4", "--role", "act").ok()
    events = checked(tmp_path / "out")
    names = {event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert names == {"none-none, trial 0, rank 0", "none-none, trial 0, rank 1"}
    assert {event["pid"] for event in events if event["ph"] == "i"} == {2}
    assert {event["name"] for event in events if event["ph"] == "C"} == {"4 act"}
    steps = [event for event in events if event["ph"] == "X" and event["pid"] == 1]
    assert [event["name"] for event in steps] == [f"step {number}" for number in range(1, len(steps) + 1)]
    inside = [event["ts"] for event in events if event["ph"] == "C" and event["pid"] == 1]
    assert min(inside) >= steps[0]["ts"]


def test_logs_for_tensorboard_are_by_cell_trial_and_rank(captured: Callable[[str], Path], tmp_path: Path) -> None:
    _export(tmp_path, captured("ranks"), "tensorboard", "--rank", "1").ok()
    found = EventAccumulator(str(tmp_path / "out" / "none-none" / "d0_m0_t0" / "rank1"))
    found.Reload()
    assert "act_abs_max/4" in found.Tags()["scalars"]
    assert not (tmp_path / "out" / "none-none" / "d0_m0_t0" / "rank0").exists()


def test_metrics_of_a_sweep_have_a_verdict_for_each_trial(captured: Callable[[str], Path], tmp_path: Path) -> None:
    _export(tmp_path, captured("overflow"), "openmetrics").ok()
    families = parse((tmp_path / "out").read_text())
    verdicts = families["aorta_evidence_verdict"]
    true = {(each.labels["cell"], each.labels["aorta_evidence_verdict"]) for each in verdicts if each.value}
    assert true == {
        ("none-none", "captured"),
        ("clip_gradients-none", "captured"),
        ("no_collectors-none", "off"),
    }
    assert [each.value for each in families["aorta_layer_numerics_first_bad_step"]] == [18]
    assert len(families["aorta_trial_wall_clock_seconds"]) == 3


def test_a_target_is_not_replaced_by_mistake(captured: Callable[[str], Path], tmp_path: Path) -> None:
    (tmp_path / "out").write_text("mine")
    ran = _export(tmp_path, captured("clean"), "csv")
    assert (ran.code, "--force" in ran.err) == (1, True)
    assert (tmp_path / "out").read_text() == "mine"
    _export(tmp_path, captured("clean"), "csv", "--force").ok()
    assert (tmp_path / "out" / "records.csv").read_text().startswith("run,cell,trial,process,")


def test_a_misspelt_layer_leaves_nothing_behind(captured: Callable[[str], Path], tmp_path: Path) -> None:
    ran = _export(tmp_path, captured("clean"), "csv", "--layer", "1.layers.0.linear")
    assert ran.code == 1
    assert "1.layers.0.linear1" in ran.err
    assert list(tmp_path.iterdir()) == []


def test_options_without_effect_are_refused(captured: Callable[[str], Path], tmp_path: Path) -> None:
    for format_, words in (("openmetrics", ["--layer", "x"]), ("csv", ["--tracks", "3"])):
        assert _export(tmp_path, captured("clean"), format_, *words).code == 2
    assert "Example: aorta-collectors export" in run(["aorta-collectors", "export", "--help"], tmp_path).ok().out
