"""Spans as a timeline for ui.perfetto.dev and chrome://tracing: a process for each that was observed.

The format is the Trace Event Format, "JSON Object Format", with ph M (metadata), X (complete), C (counter) and s, t, f
(flow): https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU. ts and dur are microseconds.

Slices of one track must lie within one another. So what may overlap has tracks of its own: steps, which another
thread's call may end, collectives, which may run while a layer computes, and kernels, whose times are the profiler's.
Flows join a collective's slices across the ranks, and `clock` in a slice's details is the causal order (causal.py).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aorta_collectors.numerics.spans.causal import Meeting, causal_clocks, meeting

_BEGINNING = '{"displayTimeUnit":"ms","traceEvents":['
_US = 1e3  # nanoseconds of one
_OWN_TRACK = ("collective", "kernel", "step")
_COUNTERS = ("loss", "grad_norm", "tokens_per_s", "samples_per_s", "memory_used_mb", "step_ms")
_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


@dataclass(frozen=True)
class Traced:
    """One process's part of a timeline.

    Attributes:
        name: As the timeline shows it.
        spans: Gives its spans, as lines of spans_<stem>.jsonl have them; called twice.
        steps: Gives its steps, as lines of steps_<stem>.jsonl have them.
    """

    name: str
    spans: Callable[[], Iterable[Mapping[str, Any]]]
    steps: Callable[[], Iterable[Mapping[str, Any]]] = tuple


def written_in(directory: Path, run_id: str | None = None) -> list[Traced]:
    """The processes that left spans in a directory, in the order of their files' names; torn lines are left out.

    Args:
        run_id: Of the launch that is meant, as their summaries have it; None for whatever is there.
    """
    stems = sorted(path.stem.removeprefix("spans_") for path in directory.glob("spans_rank*.jsonl"))
    return [
        Traced(
            stem.replace("rank", "rank ", 1).replace("_p", ", process "),
            lambda stem=stem: lines_of(directory / f"spans_{stem}.jsonl"),  # type: ignore[misc]
            lambda stem=stem: lines_of(directory / f"steps_{stem}.jsonl"),  # type: ignore[misc]
        )
        for stem in stems
        if run_id is None or _run_id_of(directory / f"summary_{stem}.json") == run_id
    ]


def _run_id_of(summary: Path) -> object:
    try:
        content = json.loads(summary.read_bytes())
    except (OSError, ValueError):
        return None
    return content.get("run_id") if isinstance(content, dict) else None


def is_timeline(path: Path) -> bool:
    """Whether a file is one that `write` has written."""
    with path.open("rb") as stream:
        return stream.read(len(_BEGINNING)) == _BEGINNING.encode()


def lines_of(path: Path) -> Iterator[Mapping[str, Any]]:
    """The whole lines of a file, decoded; none where it isn't there."""
    if not path.is_file():
        return
    with path.open("rb") as stream:
        for line in stream:
            if line.endswith(b"\n"):
                yield json.loads(line)


def write(processes: Sequence[Traced], target: Path) -> None:
    """Write a file as spans are read."""
    with target.open("w", encoding="utf-8") as stream:
        stream.write(_BEGINNING)
        before = "\n"
        for event in events(processes):
            stream.write(before + _encode(event))
            before = ",\n"
        stream.write("\n]}\n")


def events(processes: Sequence[Traced], first_pid: int = 1) -> Iterator[dict[str, Any]]:
    """The timeline, process by process.

    Args:
        first_pid: What the first one is numbered as; processes of several machines can have one process id.
    """
    orders: list[list[tuple[int, Meeting | None]]] = []
    zero: int | None = None
    for process in processes:
        order = []
        for span in process.spans():
            zero = span["start_ns"] if zero is None else min(zero, span["start_ns"])
            order.append((span["lamport"], meeting(span)))
        orders.append(sorted(order, key=lambda event: event[0]))
    clocks = [
        dict(zip((own for own, _ in order), causal, strict=True))
        for order, causal in zip(orders, causal_clocks(orders), strict=True)
    ]
    met: dict[Meeting, list[int]] = {}
    for index, order in enumerate(orders):
        for _, where in order:
            if where is not None and index not in met.setdefault(where, []):
                met[where].append(index)
    flows = {where: (number, ranks) for number, (where, ranks) in enumerate(met.items(), 1) if len(ranks) > 1}
    for index, process in enumerate(processes):
        yield from _of_process(process, index, first_pid + index, zero or 0, clocks[index], flows)


def _of_process(
    process: Traced,
    index: int,
    pid: int,
    zero: int,
    clocks: Mapping[int, int],
    flows: Mapping[Meeting, tuple[int, list[int]]],
) -> Iterator[dict[str, Any]]:
    yield {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": process.name}}
    yield {"ph": "M", "name": "process_sort_index", "pid": pid, "tid": 0, "args": {"sort_index": pid}}
    tracks: dict[tuple[int, str, int], int] = {}
    collectives = _Apart()
    for span in process.spans():
        lane = span["kind"] if span["kind"] in _OWN_TRACK else ""
        number = collectives.number_of(span) if lane == "collective" else 1
        track = (span["thread"], lane, number)
        if track not in tracks:
            tracks[track] = len(tracks)
            name = f"{lane}s of thread {span['thread']}" if lane else f"thread {span['thread']}"
            name += f" ({number})" if number > 1 else ""
            yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": tracks[track], "args": {"name": name}}
        here = {"pid": pid, "tid": tracks[track], "ts": round((span["start_ns"] - zero) / _US, 3)}
        yield {
            "ph": "X",
            "cat": span["kind"],
            "name": _name(span),
            **here,
            "dur": round(span["duration_ns"] / _US, 3),
            "args": {**_told(span), "clock": clocks[span["lamport"]]},
        }
        where = meeting(span)
        if where is not None and where in flows:
            number, ranks = flows[where]
            phase = "s" if index == ranks[0] else "f" if index == ranks[-1] else "t"
            yield {"ph": phase, "cat": "collective", "name": span["name"], "id": number, "bp": "e", **here}
    for step in process.steps():
        here = {"pid": pid, "tid": 0, "ts": round((step["start_ns"] - zero) / _US, 3)}
        for counter in _COUNTERS:
            value = step[counter]
            if isinstance(value, (int, float)):  # of what is not finite a text is written
                yield {"ph": "C", "name": counter, **here, "args": {counter: value}}


class _Apart:
    """Spreads what may overlap in any way, such as the reductions of several models, over tracks."""

    def __init__(self) -> None:
        self._ends: dict[int, list[int]] = {}

    def number_of(self, span: Mapping[str, Any]) -> int:
        """The first track of its thread, from 1, on which all before it have ended by its beginning."""
        ends = self._ends.setdefault(span["thread"], [])
        end_ns = span["start_ns"] + span["duration_ns"]
        for index, last_ns in enumerate(ends):
            if last_ns <= span["start_ns"]:
                ends[index] = end_ns
                return index + 1
        ends.append(end_ns)
        return len(ends)


def _name(span: Mapping[str, Any]) -> str:
    if span["kind"] == "step":
        return f"step {span['step']}"
    name = f"{span['name']} {span['layer']}".rstrip()
    return f"{name} backward" if span["direction"] == "backward" else name


def _told(span: Mapping[str, Any]) -> dict[str, Any]:
    told = {key: span[key] for key in ("layer", "direction", "step", "span_id", "parent_span_id") if span[key]}
    if span["overhead_ns"]:
        told["overhead_us"] = round(span["overhead_ns"] / _US, 3)
    return {**told, **span["attributes"]}
