"""The pages of numerics: what they show, of one collector or of both, hostile names, and of very much a small file."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from aorta_collectors.analysis.captures import NUMERICS
from aorta_collectors.analysis.numerics.processes import processes_of
from aorta_collectors.analysis.numerics.tables import Lines
from aorta_collectors.analysis.report.course import MOST_POINTS, course_of
from aorta_collectors.analysis.report.found import found_below
from aorta_collectors.analysis.report.statistics import COLUMNS, ROWS, statistics_of
from aorta_collectors.analysis.search import captures_below
from aorta_collectors.errors import ArtifactError
from aorta_collectors.report.html.numerics_figures import MOST_BARS
from tests.captured.sweeps import trial
from tests.captured.synthetic import record
from tests.numerics.synthetic import Line, brick, escalation, stat, step_line, write
from tests.report.support import HOSTILE, figures_of, page_below, shown_text, without_scripts

ALL = {"trace": "layer", "profile": "deferred"}


def heats(path: Path) -> dict[str, Any]:
    """Statistics by direction."""
    (found,) = captures_below(path, NUMERICS).captured
    with Lines() as lines:
        return {statistics.direction: statistics for statistics in statistics_of(lines, processes_of(found))[0]}


def course(path: Path) -> Any:
    (found,) = captures_below(path, NUMERICS).captured
    with Lines() as lines:
        return course_of(lines, processes_of(found))


def test_a_run_of_numerics_alone_has_a_page(tmp_path: Path) -> None:
    page = page_below(write(tmp_path / "out", config=ALL, escalations=[escalation("h.0.attn")]))
    shown = " ".join(shown_text(page).split())
    assert "4 steps, 10 ms a step, most in h.0.attn" in shown
    for wanted in (
        "Where the time goes",
        "Loss 0.25, best 0.25 in step 4",
        "1 closer look at 1 module",
        "aten::mm 300 us",
    ):
        assert wanted in shown
    assert "Where it starts" not in shown
    names = {name.removeprefix("numerics-").rpartition("-")[0] for name in figures_of(page)}
    assert {"phases", "bricks", "roofline", "breakdowns", "loss", "steps", "throughput", "memory", "norm"} <= names
    assert {f"{what}-{way}" for what in ("largest", "deviation") for way in ("forward", "backward")} <= names


def test_a_point_lies_where_it_was_measured(tmp_path: Path) -> None:
    bricks = [brick("fc", self_us=4000.0, total_us=4000.0, calls=4, flops=5e7, bytes=1e6, bound="compute")]
    figure = figures_of(page_below(write(tmp_path / "out", config=ALL, bricks=bricks)))["numerics-roofline-0"]
    roof, point = figure["data"]
    # A call takes 1000 us: 50 GFLOP/s at 50 FLOP/B.
    assert (*point["x"], *point["y"]) == pytest.approx((50.0, 5e10))
    assert roof["x"][1] == 5  # the ridge: 100 GFLOP/s over 20 GB/s
    assert max(roof["y"]) == 1e11


def test_the_course_of_a_run(tmp_path: Path) -> None:
    losses: list[float | str] = [4.0, 3.0, "nan", 2.0, 5.0]
    lines = [
        step_line(step, loss=loss, step_ms=10.0 * step, is_counted=step == 2) for step, loss in enumerate(losses, 1)
    ]
    found = course(write(tmp_path / "out", steps=5, step_lines=lines))
    assert found.loss == ((1, 4.0), (2, 3.0), (4, 2.0), (5, 5.0))
    assert [value for _, value in found.ema] == pytest.approx([4.0, 3.9, 3.71, 3.839])
    assert (found.best_loss, found.best_loss_step, found.bad_steps) == (2.0, 4, (3,))
    assert found.processes[0].step_ms == ((1, 10.0), (3, 30.0), (4, 40.0), (5, 50.0))


def test_the_worst_of_all_ranks_and_what_is_not_finite(tmp_path: Path) -> None:
    stats = [stat(1, "wte", max=3.0, std=0.25), stat(2, "wte", min=None, max=None, std=None, nan_count=8)]
    out = write(tmp_path / "out", ranks=2, steps=2, config=ALL, stats=stats)
    found = heats(out)["forward"]
    assert (found.rows, found.columns, found.ranks) == ((("wte", "wte", 1),), ((1, 1), (2, 2)), 2)
    assert (found.largest, found.deviation) == (((3.0, None),), ((0.25, None),))
    assert found.bad == ((0, 1, 4, 8, 0, 0, 8, 0),)


def test_steps_without_statistics_have_no_column(tmp_path: Path) -> None:
    stats = [stat(step, "wte", max=float(step)) for step in (1, 11, 21)]
    found = heats(write(tmp_path / "out", steps=25, config=ALL, stats=stats))["forward"]
    assert found.columns == ((1, 10), (11, 20), (21, 21))
    assert found.largest == ((1.0, 11.0, 21.0),)


def test_every_step_and_layer_is_in_a_cell(tmp_path: Path) -> None:
    layers, steps = [f"h.{index}" for index in range(ROWS + 50)], (1, 2, 3 * COLUMNS)
    stats = [stat(step, layer, seq, max=float(seq)) for step in steps for seq, layer in enumerate(layers)]
    stats += [stat(step, layers[0]) for step in range(3, 3 * COLUMNS)]
    found = heats(write(tmp_path / "out", steps=3 * COLUMNS, config=ALL, stats=stats, step_lines=[], spans=[]))[
        "forward"
    ]
    assert sum(count for _, _, count in found.rows) == len(layers)
    assert (len(found.rows), len(found.columns)) == (ROWS, COLUMNS)
    assert [first for first, _ in found.columns[1:]] == [last + 1 for _, last in found.columns[:-1]]
    assert (found.columns[0][0], found.columns[-1][1]) == (1, 3 * COLUMNS)
    # With all steps in it, the largest of the last layer is in the first and in the last column.
    assert found.largest[-1][0] == found.largest[-1][-1] == len(layers) - 1


def test_where_it_stopped_is_on_top(tmp_path: Path) -> None:
    cause = {"kind": "parameters", "evidence": "parameter weight holds 1 NaN"}
    stopped = {"layer": "h.1.mlp", "module_type": "MLP", "step": 3, "direction": "forward", "kind": "nan"}
    stats = [stat(3, "h.1.mlp", nan_count=2, dtype="bfloat16")]
    summary = {"stopped": {**stopped, "causes": [cause]}}
    shown = " ".join(shown_text(page_below(write(tmp_path / "out", config=ALL, stats=stats, summary=summary))).split())
    assert "Stopped in step 3, layer h.1.mlp" in shown
    for wanted in ("The line was stopped", "h.1.mlp (MLP)", "2 NaN of 8 bfloat16 elements", cause["evidence"]):
        assert wanted in shown


def test_what_came_to_nothing_is_no_headline(tmp_path: Path) -> None:
    out = write(tmp_path / "out", config=ALL, stats=[stat(1, "h.0.attn", inf_count=2)])
    shown = " ".join(shown_text(page_below(out)).split())
    assert "4 steps, 10 ms a step" in shown
    assert "Inf at h.0.attn, step 1; training went on as if nothing had been" in shown


def test_both_collectors_have_one_page(tmp_path: Path) -> None:
    folder = trial(tmp_path, "none", {0: [record(1)]})
    write(folder / "trial_d0_m0_t0" / "numerics", config=ALL)
    trial(tmp_path, "off", None)
    write(tmp_path / "other" / "training" / "trial_d0_m0_t0" / "numerics", config={})  # that runs
    shown = " ".join(shown_text(page_below(tmp_path)).split())
    assert "Nothing bad in 1 observed trial" in shown
    assert "Time and statistics: none, trial 0" in shown
    assert "Time and statistics: other, trial 0" in shown
    assert shown.count("10 ms a step, 6.4 k tokens/s") == 2


def test_of_a_selection_both_are_chosen(tmp_path: Path) -> None:
    for cell in ("a", "b"):
        folder = trial(tmp_path, cell, {0: [record(1)]})
        write(folder / "trial_d0_m0_t0" / "numerics", ranks=2)
    found = found_below(tmp_path)
    of_cell = found.only(cells=["b"])
    assert (
        [trial.cell for trial in of_cell.captures.trials] == [trial.cell for trial in of_cell.numerics.trials] == ["b"]
    )
    # Rank 1 is numerics' alone.
    of_rank = found.only(ranks=[1])
    assert {process.rank for trial in of_rank.numerics.trials for process in trial.processes} == {1}
    assert not any(trial.processes for trial in of_rank.captures.trials)
    with pytest.raises(ArtifactError, match="no cell 'c'"):
        found.only(cells=["c"])


@pytest.mark.parametrize("hostile", HOSTILE)
def test_what_a_program_chose_is_text(tmp_path: Path, hostile: str) -> None:
    stats = [stat(1, hostile, nan_count=1, zero_fraction=0.9, tensor_path=hostile)]
    stopped = {"layer": hostile, "step": 1, "kind": "nan", "causes": [{"kind": hostile, "evidence": hostile}]}
    looks = [escalation(hostile, kernels=[{"name": hostile, "calls": 1, "self_us": 1.0, "device_us": None}])]
    more: dict[str, Any] = {"bricks": [brick(hostile, module_type=hostile)], "stats": stats, "escalations": looks}
    more["summary"] = {"stopped": stopped, "warnings": [hostile], "device": hostile}
    page = page_below(write(tmp_path / "out", config=ALL, **more))
    assert page.count("<script") == 3
    markup = without_scripts(page)
    assert "<img" not in markup
    assert "\u202e" not in markup
    assert '<a href="http' not in markup
    data = page.partition('id="data">')[2].partition("</script>")[0]
    assert not set("<>&") & set(data)


def test_a_page_of_very_much_stays_small(tmp_path: Path) -> None:
    layers = [f"model.layers.{index}.attention" for index in range(1000)]
    steps: list[Line] = [step_line(step, loss=1 + math.sin(step)) for step in range(1, 20_001)]
    stats = [stat(step, layer, seq) for step in range(1, 21) for seq, layer in enumerate(layers)]
    bricks = [brick(layer, direction=way) for layer in layers for way in ("forward", "backward")]
    out = write(tmp_path / "out", steps=20_000, config=ALL, step_lines=steps, stats=stats, bricks=bricks, spans=[])
    page = page_below(out)
    figures = figures_of(page)
    assert len(page) < 6_500_000  # of which plotly is 4.8 million
    assert len(figures["numerics-steps-0"]["data"][0]["x"]) <= MOST_POINTS
    assert len(figures["numerics-largest-forward-0"]["rows"]) <= ROWS
    assert len(figures["numerics-bricks-0"]["layout"]["yaxis"]["tickvals"]) == MOST_BARS


def test_little_is_a_page_too(tmp_path: Path) -> None:
    out = write(tmp_path / "out", steps=0, config={"step_metrics": "off"}, summary={"trace_steps": [], "phases": {}})
    shown = " ".join(shown_text(page_below(out)).split())
    assert "0 steps" in shown
    assert "Modules were not timed: profile is off" in shown
