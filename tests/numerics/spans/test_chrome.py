"""The timeline: slices that nest, tracks, flows between ranks, and counters."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from aorta_collectors.numerics.spans.chrome import write, written_in
from aorta_collectors.numerics.spans.span_lines import SpanLines
from aorta_collectors.numerics.spans.trace_context import TraceContext
from tests.numerics.spans.test_span_lines import span


def left(directory: Path, rank: int, spans: list[Any], steps: list[dict[str, Any]] = []) -> None:  # noqa: B006
    lines = SpanLines(TraceContext.of({}, "run"), rank, 100 + rank)
    (directory / f"spans_rank{rank}.jsonl").write_text("".join(f"{line}\n" for line in lines.lines(spans)))
    (directory / f"steps_rank{rank}.jsonl").write_text("".join(f"{json.dumps(step)}\n" for step in steps))


def timeline(directory: Path) -> list[dict[str, Any]]:
    write(written_in(directory), directory / "trace.json")
    loaded: list[dict[str, Any]] = json.loads((directory / "trace.json").read_text())["traceEvents"]
    return loaded


def two_ranks(directory: Path) -> list[dict[str, Any]]:
    for rank in (0, 1):
        spans = [
            span(name="EMBED", lamport=2, span_id=3, parent_id=1, start_ns=2_000, end_ns=3_000),
            span(
                name="all_reduce", kind="collective", layer="", direction="", span_id=4, lamport=3 + 10 * rank,
                start_ns=2_500, end_ns=9_000, attributes={"group": "0", "sequence": 0, "bytes": 64},
            ),
            span(name="STEP", kind="step", layer="", direction="", lamport=1, span_id=1, parent_id=0, end_ns=8_000),
            span(name="Linear", kind="layer", layer="head", direction="backward", lamport=20, start_ns=4_000),
        ]  # fmt: skip
        step = {"start_ns": 2 * 10**18, "loss": 0.5, "grad_norm": "nan", "tokens_per_s": None, "samples_per_s": 8.0}
        left(directory, rank, spans, [{**step, "memory_used_mb": 1.0, "step_ms": 2.0}])
    return timeline(directory)


def test_a_process_for_each_and_a_slice_for_each_span(tmp_path: Path) -> None:
    events = two_ranks(tmp_path)
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert names == {1: "rank 0", 2: "rank 1"}
    slices = [event for event in events if event["ph"] == "X" and event["pid"] == 1]
    assert [event["name"] for event in slices] == ["EMBED wte", "all_reduce", "step 3", "Linear head backward"]
    embed = slices[0]
    assert (embed["cat"], embed["dur"], embed["args"]["layer"]) == ("phase", 1.0, "wte")
    assert all(event["ts"] >= 0 for event in events if "ts" in event)


def test_slices_of_a_track_lie_within_one_another(tmp_path: Path) -> None:
    tracks = defaultdict(list)
    for event in two_ranks(tmp_path):
        if event["ph"] == "X":
            tracks[event["pid"], event["tid"]].append((event["ts"], -event["dur"], event["ts"] + event["dur"]))
    assert len(tracks) == 6  # of a thread, its collectives, and its steps, on each rank
    for slices in tracks.values():
        ends: list[float] = []
        for begin, _, end in sorted(slices):
            while ends and ends[-1] <= begin:
                ends.pop()
            assert not ends or end <= ends[-1] + 1e-6
            ends.append(end)


def test_a_flow_joins_a_collective_across_ranks_and_clocks_agree_there(tmp_path: Path) -> None:
    events = two_ranks(tmp_path)
    flows = [(event["ph"], event["pid"], event["id"]) for event in events if event["ph"] in "stf"]
    assert flows == [("s", 1, 1), ("f", 2, 1)]
    clocks = {(event["pid"], event["name"]): event["args"]["clock"] for event in events if event["ph"] == "X"}
    assert clocks[1, "all_reduce"] == clocks[2, "all_reduce"] == 13
    assert clocks[1, "EMBED wte"] < 13 < clocks[1, "Linear head backward"]


def test_counters_are_what_is_finite_and_known(tmp_path: Path) -> None:
    counters = {event["name"]: event["args"] for event in two_ranks(tmp_path) if event["ph"] == "C"}
    assert counters == {
        "loss": {"loss": 0.5},
        "samples_per_s": {"samples_per_s": 8.0},
        "memory_used_mb": {"memory_used_mb": 1.0},
        "step_ms": {"step_ms": 2.0},
    }


def test_a_torn_line_is_left_out_and_an_empty_directory_is_a_timeline(tmp_path: Path) -> None:
    assert timeline(tmp_path) == []
    left(tmp_path, 0, [span()])
    with (tmp_path / "spans_rank0.jsonl").open("a") as stream:
        stream.write('{"trace_id": "tor')
    assert [event["name"] for event in timeline(tmp_path) if event["ph"] == "X"] == ["EMBED wte"]


def test_collectives_that_overlap_have_tracks_of_their_own(tmp_path: Path) -> None:
    times = [(0, 10), (5, 15), (12, 20), (16, 30), (8, 9)]
    spans = [
        span(name="all_reduce", kind="collective", layer="", lamport=number, start_ns=1000 * begin, end_ns=1000 * end)
        for number, (begin, end) in enumerate(times)
    ]
    left(tmp_path, 0, spans)
    events = timeline(tmp_path)
    tracks = [event["tid"] for event in events if event["ph"] == "X"]
    assert tracks == [0, 1, 0, 1, 2]
    names = [event["args"]["name"] for event in events if event["name"] == "thread_name"]
    assert [name.partition(" of thread ")[0] for name in names] == ["collectives"] * 3
    assert [name.endswith(")") for name in names] == [False, True, True]


def test_processes_of_another_launch_are_left_out(tmp_path: Path) -> None:
    for rank, run_id in enumerate(("mine", "other", None)):
        left(tmp_path, rank, [span()])
        if run_id is not None:
            (tmp_path / f"summary_rank{rank}.json").write_text(json.dumps({"run_id": run_id}))
    assert [process.name for process in written_in(tmp_path, "mine")] == ["rank 0"]
    assert len(written_in(tmp_path)) == 3
