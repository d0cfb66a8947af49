"""What is known of a run while it goes on: from before there is anything until all has ended."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aorta_collectors.analysis.snapshot import Progress
from aorta_collectors.analysis.watch import Watch
from aorta_collectors.evidence.ledger import LEDGER, NOT_YET
from aorta_collectors.observe.files import SummaryFile
from tests.captured.synthetic import record, write

RUNNING = {"status": "running", "ended_by": None}


def progress(watch: Watch) -> Progress:
    found = watch.look().progress
    assert found is not None
    return found


def summary(directory: Path, rank: int, **changed: Any) -> None:
    path = directory / f"summary_rank{rank}.json"
    other = path.with_suffix(".new")
    other.write_text(json.dumps({**json.loads(path.read_text()), **changed}))
    other.replace(path)


def test_a_directory_is_waited_for_and_then_followed_to_its_end(tmp_path: Path) -> None:
    watch = Watch(tmp_path / "out")
    snapshot = watch.look()
    assert (snapshot.state, snapshot.awaited) == ("waiting", f"{tmp_path / 'out'} does not exist yet")
    (tmp_path / "out").mkdir()
    assert str(watch.look().awaited).startswith(f"nothing was captured below {tmp_path / 'out'}; name")
    out = write(tmp_path / "out", {0: [record(1)]}, {0: RUNNING})
    snapshot = watch.look()
    assert (snapshot.state, snapshot.awaited, snapshot.is_bad) == ("running", None, False)
    with (out / "layers_rank0.jsonl").open("a") as stream:
        stream.write(json.dumps({**record(2, "b", nans=1), "rank": 0, "host": "here", "pid": 1000}) + "\n")
    snapshot = watch.look()
    assert (snapshot.is_bad, snapshot.magnitudes.bad[0].tensor["module_path"]) == (True, "b")
    summary(out, 0, steps_seen=7, status="complete", ended_by="exit")
    snapshot = watch.look()
    assert (snapshot.state, snapshot.progress and snapshot.progress.steps) == ("ended", 7)
    json.dumps(snapshot.to_json(), allow_nan=False)


def test_what_is_written_in_place_is_seen(tmp_path: Path) -> None:
    out = write(tmp_path / "out", {0: [record(1)]}, {0: RUNNING})
    content = json.loads((out / "summary_rank0.json").read_text())
    file = SummaryFile(
        out / "summary_rank0.json", "steps_seen", widths={"status": 10, "ended_by": 60, "write_error": 120}
    )
    file.write({**content, "write_error": None, "nested": {"steps_seen": 99, "status": "complete"}})
    watch = Watch(out)
    assert progress(watch).steps == 1
    for step in (2, 3, 1234567):
        file.beat(step)
        os.utime(out / "summary_rank0.json", ns=(step, step))  # however coarse the file system's clock is
        assert (progress(watch).steps, progress(watch).ranks[0].state) == (step, "running")
    file.write({**content, "steps_seen": 8, "write_error": None, "first_bad": _first_bad(8)})
    assert progress(watch).first_bad == {**_first_bad(8), "rank": 0}
    file.close()


def test_ranks_that_are_behind_missing_or_ended_by_a_signal_are_told(tmp_path: Path) -> None:
    ranks = {rank: [record(100 if rank != 1 else 40)] for rank in range(4)}
    out = write(tmp_path / "out", ranks, {rank: {**RUNNING, "world_size": 6} for rank in ranks})
    (out / "sigterm_rank2.txt").write_text('  File "/x/train.py", line 30 in main\n')
    summary(out, 3, status="complete", ended_by="RuntimeError: no")
    found = progress(Watch(out))
    assert [(rank.rank, rank.behind, rank.state) for rank in found.ranks] == [
        (0, 0, "running"),
        (1, 60, "running"),
        (2, 0, "killed"),
        (3, 0, "ended"),
    ]
    assert (found.missing, found.ranks[2].ended_by) == (2, "signal SIGTERM in train.py:30 (main)")
    assert not found.has_ended


def test_a_process_of_this_host_that_was_killed_is_gone(tmp_path: Path) -> None:
    done = subprocess.Popen(["true"])
    done.wait()
    of_rank = {0: (done.pid, socket.gethostname()), 1: (os.getpid(), socket.gethostname()), 2: (done.pid, "elsewhere")}
    out = write(tmp_path / "out", {rank: [record(1)] for rank in of_rank}, dict.fromkeys(of_rank, RUNNING))
    for rank, (pid, host) in of_rank.items():
        summary(out, rank, pid=pid, host=host)
        long_ago = 1_700_000_000
        os.utime(out / f"summary_rank{rank}.json", (long_ago, long_ago))
    assert [rank.state for rank in progress(Watch(out)).ranks] == ["gone", "running", "running"]


def test_another_launch_in_the_same_directory_is_another_run(tmp_path: Path) -> None:
    out = write(tmp_path / "out", {0: [record(1, "old", nans=1)], 1: [record(1)]})
    watch = Watch(out)
    assert watch.look().is_bad
    shutil.rmtree(out)
    write(tmp_path / "out", {0: [record(1, "new")]}, {0: {"run_id": "b", "pid": 5, **RUNNING}})
    snapshot = watch.look()
    assert not snapshot.is_bad
    assert [seen.tensor["module_path"] for seen in snapshot.magnitudes.worst] == ["new"]


def test_ranks_that_were_started_one_by_one_are_one_run_and_what_lay_there_before_is_not(tmp_path: Path) -> None:
    out = write(tmp_path / "out", {rank: [record(1)] for rank in range(3)}, dict.fromkeys(range(3), RUNNING))
    for rank, hour in ((0, "10"), (1, "10"), (2, "08")):
        summary(out, rank, run_id=f"of{rank}", world_size=2, started_at=f"2026-11-29T{hour}:00:00+00:00")
    os.utime(out / "summary_rank2.json", (1_700_000_000, 1_700_000_000))
    found = progress(Watch(out))
    assert ([rank.rank for rank in found.ranks], found.missing) == ([0, 1], 0)


def test_a_summary_that_is_none_is_a_problem_and_the_others_are_shown(tmp_path: Path) -> None:
    out = write(tmp_path / "out", {0: [record(1)], 1: [record(1)]})
    watch = Watch(out)
    watch.look()
    (out / "summary_rank1.json").write_text('{"rank": ')
    summary(out, 0, steps_seen=7)
    snapshot = watch.look()
    assert snapshot.progress is not None
    assert [(rank.rank, rank.steps) for rank in snapshot.progress.ranks] == [(0, 7), (1, 1)]
    assert any(problem.startswith("summary_rank1.json: ") for problem in snapshot.problems)


def test_what_a_link_leads_to_is_not_read(tmp_path: Path, captured: Callable[[str], Path]) -> None:
    run = tmp_path / "run"
    shutil.copytree(captured("clean"), run)
    (artifacts,) = run.glob("*/*/trial_*/layer_numerics")
    artifacts.rename(tmp_path / "moved")
    artifacts.symlink_to(tmp_path / "moved")
    assert Watch(run).look().progress is None


@pytest.mark.parametrize("of_trial", [False, True])
def test_a_sweep_that_has_ended(captured: Callable[[str], Path], of_trial: bool) -> None:
    run = captured("mitigations")
    (trial,) = run.glob("none-none/*/trial_*.json")
    snapshot = Watch(trial if of_trial else run).look()
    assert snapshot.state == "ended"
    assert snapshot.is_bad
    by_cell = {cell.cell: cell for cell in snapshot.cells}
    assert (by_cell["none-none"].verdict, by_cell["none-none"].passed) == ("captured", False)
    assert by_cell["none-none"].first_bad is not None
    if of_trial:
        assert snapshot.cell == "none-none"
        assert snapshot.progress is not None
        assert snapshot.progress.origin is not None
    else:
        assert len(by_cell) == 6
        assert by_cell["fp32_scores-none"].passed


def test_a_sweep_that_goes_on_from_trial_to_trial(tmp_path: Path, captured: Callable[[str], Path]) -> None:
    whole, run = captured("mitigations"), tmp_path / "run"
    run.mkdir()
    cells = ["none-none", "clip_gradients-none", "fp32_scores-none"]
    requested = {cell: {"cell": cell, "trial": "-", "collector": "layer_numerics", "reason": NOT_YET} for cell in cells}

    def note() -> None:
        (run / LEDGER).write_text(json.dumps({"schema_version": 1, "requested": list(requested.values())}))

    def look() -> Any:
        return Watch(run).look()

    note()
    snapshot = look()
    assert (snapshot.state, [cell.state for cell in snapshot.cells]) == ("waiting", ["to come"] * 3)
    for index, cell in enumerate(cells):
        (trial,) = (whole / cell).glob("*/trial_*.json")
        there = run / trial.relative_to(whole).with_suffix("")
        (there / "layer_numerics").mkdir(parents=True)
        assert look().state == "waiting"  # it has called no model yet
        shutil.rmtree(there)
        shutil.copytree(trial.with_suffix(""), there)  # it has a summary now
        snapshot = look()
        assert (snapshot.state, snapshot.cell) == ("running", cell)
        assert [shown.state for shown in snapshot.cells] == [
            *["ended"] * index,
            "running",
            *["to come"] * (len(cells) - 1 - index),
        ]
        shutil.copy(trial, there.with_suffix(".json"))
        (receipt,) = trial.parent.glob("receipt_*.json")
        shutil.copy(receipt, there.parent)
        snapshot = look()
        assert snapshot.state == "waiting"
        assert snapshot.cells[index].verdict == "captured"
        requested[cell]["trial"] = json.loads(trial.read_text())["trial_id"]
        note()
    assert look().state == "ended"


def _first_bad(step: int) -> dict[str, Any]:
    return {"step": step, "layer": "a", "direction": "fwd", "kind": "nan", "matmul_calls_so_far": 1, "seq": 0}
