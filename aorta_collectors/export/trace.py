"""A timeline for ui.perfetto.dev and chrome://tracing: a process for each process that was observed.

Each of layer_numerics has

- slices: its steps, where the summary has their durations. A slice of several steps has their mean duration.
- counters: log10 of the largest finite magnitude of a tensor, since a run-up spans tens of decades. A tensor of which
  nothing is finite, or all is zero, adds no value.
- instant events: the bad records.

Clocks of its processes have nothing in common: each process's time begins with the first it shows. The processes of
numerics, whose spans have times of day, follow (numerics/spans/chrome.py).

The format is the Trace Event Format, "JSON Object Format" with ph M (metadata), X (complete), C (counter) and i
(instant): https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU. ts and dur are microseconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, chain
from pathlib import Path
from typing import Any

import orjson

from aorta_collectors.analysis.captures import NONE, Captures, Trial
from aorta_collectors.analysis.database import Database
from aorta_collectors.numerics.spans import chrome

_TENSOR = """concat(layer, ' ', role, CASE WHEN param_name <> '' THEN ' ' END, param_name, tensor_path)"""
_THREAD = 0
_US = 1e6


@dataclass(frozen=True)
class _Process:
    """Of the trace.

    Attributes:
        steps: Begin and duration of each slice in seconds since `zero`, and how many steps that is.
        zero: Where in the process's clock the trace begins, in seconds.
    """

    pid: int
    name: str
    steps: tuple[tuple[float, float, int], ...]
    zero: float


def write_trace(database: Database, target: Path, wanted: str, tracks: int, numerics: Captures | None = None) -> None:
    """Write a file as records are read.

    Args:
        wanted: A condition on records.
        tracks: Most counters of a process: first of tensors that went bad, then of those with the largest magnitudes.
        numerics: What numerics left; None where it left nothing.
    """
    processes = _processes(database)
    with target.open("wb") as stream:
        stream.write(b'{"displayTimeUnit":"ms","traceEvents":[')
        before = b"\n"
        spans = chrome.events(_traced(numerics, bool(processes)), len(processes) + 1) if numerics is not None else ()
        for event in chain(_events(database, processes, wanted, tracks), spans):
            stream.write(before + orjson.dumps(event))
            before = b",\n"
        stream.write(b"\n]}\n")


def _events(
    database: Database, processes: Mapping[tuple[str, ...], _Process], wanted: str, tracks: int
) -> Iterator[dict[str, Any]]:
    for process in processes.values():
        here = {"pid": process.pid, "tid": _THREAD}
        yield {"ph": "M", "name": "process_name", **here, "args": {"name": process.name}}
        yield {"ph": "M", "name": "process_sort_index", **here, "args": {"sort_index": process.pid}}
        yield {"ph": "M", "name": "thread_name", **here, "args": {"name": "steps and bad records"}}
        number = 1
        for begin, duration, count in process.steps:
            name = f"step {number}" if count == 1 else f"steps {number} to {number + count - 1}"
            times = {"ts": round(begin * _US, 3), "dur": round(duration * _US, 3)}
            yield {"ph": "X", "cat": "step", "name": name, **here, **times, "args": {"step": number}}
            number += count
    place = "run, cell, trial, process"
    sql = f"""
        WITH tracks AS (
            SELECT {place}, {_TENSOR} AS tensor, true AS counted FROM records WHERE {wanted}
            GROUP BY {place}, tensor
            QUALIFY row_number() OVER (
                PARTITION BY {place} ORDER BY bool_or(bad) DESC, max(finite_abs_max) DESC NULLS LAST, tensor
            ) <= {tracks}
        ),
        named AS (SELECT *, {_TENSOR} AS tensor FROM records WHERE {wanted})
        SELECT {place}, t, tensor, counted, CASE WHEN finite_abs_max > 0 THEN log10(finite_abs_max) END, kind,
            {{'step': step, 'batch_id': batch_id, 'phase': phase, 'nan_count': nan_count, 'inf_count': inf_count,
              'huge_count': huge_count, 'finite_abs_max': finite_abs_max, 'numel': numel, 'dtype': dtype}}
        FROM named LEFT JOIN tracks USING ({place}, tensor) WHERE counted OR bad
    """
    for batch in database.batches(sql):
        for *key, t, tensor, counted, magnitude, kind, details in batch:
            process = processes[tuple(key)]
            here = {"pid": process.pid, "tid": _THREAD, "ts": round((t - process.zero) * _US, 3)}
            if counted and magnitude is not None:
                yield {"ph": "C", "name": tensor, **here, "args": {"log10": round(magnitude, 4)}}
            if kind is not None:
                args = {name: value for name, value in details.items() if value is not None}
                yield {"ph": "i", "s": "t", "cat": "bad", "name": f"{kind} in {tensor}", **here, "args": args}


def _processes(database: Database) -> dict[tuple[str, ...], _Process]:
    """By run, cell, trial and process."""
    begun: dict[tuple[str, ...], list[tuple[int, float]]] = {}
    sql = "SELECT run, cell, trial, process, step, min(t) FROM records GROUP BY ALL ORDER BY ALL"
    for *key, step, t in database.rows(sql):
        begun.setdefault(tuple(key), []).append((step, t))
    found: dict[tuple[str, ...], _Process] = {}
    for trial in database.captures.trials:
        for process in trial.processes:
            whose = (*trial.key, process.stem)
            name = f"{_label(trial)}rank {process.rank}"
            if process.line.restart:
                name += f", restart {process.line.restart}"
            found[whose] = _timed(len(found) + 1, name, process.summary, begun.get(whose, []))
    return found


def _traced(numerics: Captures, is_second: bool) -> list[chrome.Traced]:
    return [
        chrome.Traced(
            f"{_label(trial)}{'numerics, ' if is_second else ''}rank {process.rank}"
            + (f", restart {process.line.restart}" if process.line.restart else ""),
            partial(chrome.lines_of, process.files["spans"]),
            partial(chrome.lines_of, process.files["steps"]) if "steps" in process.files else tuple,
        )
        for trial in numerics.trials
        for process in trial.processes
        if "spans" in process.files
    ]


def _label(trial: Trial) -> str:
    return "" if trial.trial == NONE else f"{trial.label}, "


def _timed(pid: int, name: str, summary: Mapping[str, Any], begun: list[tuple[int, float]]) -> _Process:
    """Line the steps' durations up with the records' times.

    Args:
        begun: Steps and the time of the first record of each.
    """
    count = int(summary.get("steps_per_time", 1))
    durations = [float(each) * count / 1000 for each in summary.get("step_times_ms", [])]
    begins = [0.0, *accumulate(durations)]
    # No step began after its first record: the step that leaves least between the two says where the first one began.
    firsts = [t - begins[(step - 1) // count] for step, t in begun if 0 < step <= len(durations) * count]
    earliest = min((t for _, t in begun), default=0.0)
    start = min(firsts, default=earliest)
    zero = min(start, earliest)
    steps = tuple((start - zero + begin, duration, count) for begin, duration in zip(begins, durations, strict=False))
    return _Process(pid, name, steps, zero)
