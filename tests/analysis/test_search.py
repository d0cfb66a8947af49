"""Finding what was captured, from wherever a person points, and what is said of what cannot be read."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from aorta_collectors.analysis.captures import Captures
from aorta_collectors.analysis.search import captures_below
from aorta_collectors.errors import ArtifactError
from tests.captured.sweeps import trial
from tests.captured.synthetic import record, write

ONE = {0: [record(1)]}


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    """Two cells of two trials; one of a cell that still runs, and one that left nothing."""
    run_dir = tmp_path / "run"
    for index in (0, 10):
        trial(run_dir, "none-local", ONE, index=index)
        trial(run_dir, "fix-local", {0: [record(1)], 3: [record(1)]}, index=index)
    trial(run_dir, "none-local", ONE, index=2, verdict=None)
    trial(run_dir, "off-local", None, verdict="off")
    return run_dir


def keys(captures: Captures) -> list[tuple[str, str, str]]:
    return [found.key for found in captures.trials]


def test_a_run_directory_has_the_trials_of_all_cells_in_order(sweep: Path) -> None:
    found = captures_below(sweep)
    assert [(of.cell, of.index) for of in found.trials] == [
        ("fix-local", "0"),
        ("fix-local", "10"),
        ("none-local", "0"),
        ("none-local", "2"),
        ("none-local", "10"),
        ("off-local", "0"),
    ]
    assert found.problems == ()
    assert [of.cell for of in found.captured] == ["fix-local"] * 2 + ["none-local"] * 3
    assert [process.rank for process in found.trials[0].processes] == [0, 3]
    assert found.records_bytes == sum(path.stat().st_size for path in sweep.rglob("layers_*.jsonl"))


def test_a_trial_that_still_runs_has_neither_record_nor_receipt(sweep: Path) -> None:
    running = next(of for of in captures_below(sweep).trials if of.index == "2")
    assert (running.record, running.receipt, len(running.processes)) == ({}, None, 1)
    assert running.file == running.artifacts


def test_a_trial_that_left_nothing_has_its_receipt(sweep: Path) -> None:
    off = captures_below(sweep).trials[-1]
    assert off.processes == ()
    assert off.receipt is not None
    assert off.receipt.verdict == "off"
    assert off.record["result"] == {"passed": True}


def test_every_place_of_a_trial_means_that_trial(sweep: Path) -> None:
    folder = sweep / "fix-local" / "training"
    places = [
        folder / "trial_d0_m0_t10.json",
        folder / "trial_d0_m0_t10",
        folder / "trial_d0_m0_t10" / "layer_numerics",
    ]
    for place in places:
        found = captures_below(place)
        assert keys(found) == [(".", "fix-local", "d0_m0_t10")]
        assert found.trials[0].receipt is not None
        assert found.path == folder / "trial_d0_m0_t10.json"


def test_a_cells_directory_has_its_trials(sweep: Path) -> None:
    for place in (sweep / "none-local", sweep / "none-local" / "training"):
        assert [(of.cell, of.index) for of in captures_below(place).trials] == [
            ("none-local", "0"),
            ("none-local", "2"),
            ("none-local", "10"),
        ]


def test_a_trial_that_runs_is_found_by_its_directory(sweep: Path) -> None:
    found = captures_below(sweep / "none-local" / "training" / "trial_d0_m0_t2")
    assert keys(found) == [(".", "none-local", "d0_m0_t2")]


def test_a_directory_without_a_sweep_is_one_trial_without_a_name(tmp_path: Path) -> None:
    directory = write(tmp_path / "out", {1: [record(1)], 0: [record(1)]}, {0: {"restart": 1}})
    (found,) = captures_below(directory).trials
    assert found.key == (".", "-", "-")
    assert found.label == str(directory)
    # A later attempt comes after an earlier one.
    assert [(process.line.restart, process.rank) for process in found.processes] == [(0, 1), (1, 0)]


def test_sweeps_below_one_path_are_told_apart(tmp_path: Path) -> None:
    for run in ("b", "a"):
        trial(tmp_path / run, "none-local", ONE)
        (tmp_path / run / "evidence.json").write_text("{}")
    found = captures_below(tmp_path)
    assert keys(found) == [("a", "none-local", "d0_m0_t0"), ("b", "none-local", "d0_m0_t0")]
    assert [of.label for of in found.trials] == ["a: none-local, trial 0", "b: none-local, trial 0"]
    assert all("what this sweep asked for is not known" in problem for problem in found.problems)
    assert keys(captures_below(tmp_path / "b")) == [(".", "none-local", "d0_m0_t0")]


def test_a_real_sweeps_cells_are_in_the_recipes_order(captured: Callable[[str], Path]) -> None:
    found = captures_below(captured("overflow"))
    assert [of.cell for of in found.trials] == ["none-none", "clip_gradients-none", "no_collectors-none"]
    assert [of.receipt.verdict for of in found.trials if of.receipt] == ["captured", "captured", "off"]
    assert found.problems == ()
    assert all("env" not in of.record for of in found.trials)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("trial_d0_m0_t0.json", "{"),
        ("trial_d0_m0_t0.json", "[]"),
        ("receipt_d0_m0_t0_layer_numerics.json", "{}"),
        ("trial_d0_m0_t0/layer_numerics/summary_rank0.json", "nothing"),
        ("trial_d0_m0_t0/layer_numerics/summary_rank0.json", '{"rank": 0}'),
    ],
)
def test_what_is_damaged_is_told_and_the_rest_is_read(sweep: Path, name: str, content: str) -> None:
    whole = captures_below(sweep)
    (sweep / "none-local" / "training" / name).write_text(content)
    found = captures_below(sweep)
    assert keys(found) == keys(whole)
    assert len(found.problems) == 1
    assert "none-local" in found.problems[0]
    damaged = [of for of, before in zip(found.trials, whole.trials, strict=True) if of != before]
    assert [(of.cell, of.index) for of in damaged] == [("none-local", "0")]


def test_links_are_not_followed(sweep: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    sweep.rename(elsewhere)
    # A cell, a trial's record, its receipt, its artifacts, and a file in there, each a link.
    trial(sweep, "whole-local", ONE)
    (sweep / "none-local").symlink_to(elsewhere / "none-local")
    folder, source = sweep / "fix-local" / "training", elsewhere / "fix-local" / "training"
    folder.mkdir(parents=True)
    for name in ("trial_d0_m0_t0.json", "receipt_d0_m0_t0_layer_numerics.json", "trial_d0_m0_t0"):
        (folder / name).symlink_to(source / name)
    artifacts = folder / "trial_d0_m0_t10" / "layer_numerics"
    artifacts.mkdir(parents=True)
    for name in ("summary_rank0.json", "layers_rank0.jsonl"):
        (artifacts / name).symlink_to(source / "trial_d0_m0_t10" / "layer_numerics" / name)
    found = captures_below(sweep)
    assert [(of.cell, of.record == {}, len(of.processes)) for of in found.trials] == [
        ("fix-local", True, 0),
        ("whole-local", False, 1),
    ]
    assert any("not followed" in problem for problem in found.problems)


def test_records_that_are_a_link_are_not_read(tmp_path: Path) -> None:
    directory = write(tmp_path / "out", ONE)
    (directory / "layers_rank0.jsonl").rename(tmp_path / "layers")
    (directory / "layers_rank0.jsonl").symlink_to(tmp_path / "layers")
    (process,) = captures_below(directory).trials[0].processes
    assert process.records is None


def test_records_may_be_gone(tmp_path: Path) -> None:
    directory = write(tmp_path / "out", ONE)
    (directory / "layers_rank0.jsonl").unlink()
    (process,) = captures_below(directory).trials[0].processes
    assert (process.records, process.records_bytes) == (None, 0)


def test_where_nothing_was_captured_that_is_an_error(tmp_path: Path, sweep: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(ArtifactError, match=r"nothing was captured below .*empty; name a run directory"):
        captures_below(empty)
    (empty / "summary_rank0.json").write_text("{}")
    with pytest.raises(ArtifactError, match=r"nothing was captured below .*summary_rank0\.json is no summary"):
        captures_below(empty)
    for name in ("notes.txt", "matrix.json"):
        (empty / name).write_text("{}")
        with pytest.raises(ArtifactError, match="is no trial's record"):
            captures_below(empty / name)
    with pytest.raises(ArtifactError, match="is not a directory"):
        captures_below(tmp_path / "not there")
    gone = sweep / "off-local" / "training" / "trial_d0_m0_t7"
    gone.mkdir()
    with pytest.raises(ArtifactError, match=r"nothing was captured in .*trial_d0_m0_t7"):
        captures_below(gone)


def test_a_folder_that_only_looks_like_a_trial_is_none(sweep: Path) -> None:
    before = keys(captures_below(sweep))
    (sweep / "none-local" / "training" / "trial_d9_m9_t9").mkdir()
    shutil.copy(sweep / "off-local" / "training" / "trial_d0_m0_t0.json", sweep / "trial_of_what.json")
    assert keys(captures_below(sweep)) == before


class TestOnly:
    def test_it_is_by_cell_and_trial_and_rank(self, sweep: Path) -> None:
        found = captures_below(sweep)
        assert {of.cell for of in found.only(cells=["fix-local", "off-local"]).trials} == {"fix-local", "off-local"}
        assert {of.index for of in found.only(trials=["10"]).trials} == {"10"}
        assert found.only(trials=["d0_m0_t10"]) == found.only(trials=["10"])
        assert keys(found.only(cells=["fix-local"], trials=["0"])) == [(".", "fix-local", "d0_m0_t0")]
        of_rank = found.only(ranks=[3])
        assert {process.rank for of in of_rank.trials for process in of.processes} == {3}
        assert found.only() == found

    @pytest.mark.parametrize(
        ("wanted", "message"),
        [
            ({"cells": ["nowhere"]}, "has no cell 'nowhere'; there is: fix-local, none-local, off-local"),
            ({"trials": ["7"]}, "has no trial '7'; there is: d0_m0_t0, d0_m0_t10, d0_m0_t2"),
            ({"ranks": [7]}, "has no rank 7; there is: 0, 3"),
            ({"cells": ["off-local"], "ranks": [0]}, "has no rank 0; there is: none"),
        ],
    )
    def test_what_is_not_there_is_an_error_that_says_what_is(
        self, sweep: Path, wanted: dict[str, list[str]], message: str
    ) -> None:
        with pytest.raises(ArtifactError) as error:
            captures_below(sweep).only(**wanted)  # type: ignore[arg-type]
        assert message in str(error.value)

    def test_a_trial_is_one_of_the_cells_that_are_wanted(self, sweep: Path) -> None:
        with pytest.raises(ArtifactError, match="has no trial '10'"):
            captures_below(sweep).only(cells=["off-local"], trials=["10"])


def test_what_is_said_to_be_bad_by_design_has_a_kind_and_a_step(tmp_path: Path) -> None:
    write(tmp_path / "out", {0: [record(1)]}, {0: {"expected": [{"kind": "mask", "first": {}}]}})
    with pytest.raises(ArtifactError, match=r"summary_rank0.json is no summary of layer_numerics: .*step"):
        captures_below(tmp_path / "out")


def test_runs_without_a_ledger_are_told_apart_by_the_folder_they_lie_in(tmp_path: Path) -> None:
    for run in ("first", "second"):
        write(tmp_path / run / "cell" / "training" / "trial_d0_m0_t0" / "layer_numerics", {0: [record(1)]})
    found = captures_below(tmp_path)
    assert [trial.key for trial in found.trials] == [("first", "cell", "d0_m0_t0"), ("second", "cell", "d0_m0_t0")]
