"""TensorBoard scalars: a log directory for each cell, trial and process, written by tensorboard's own event writer.

Tags are ROLE_abs_max/LAYER, the largest finite magnitude of a step (NaN where nothing was finite), and, of tensors that
went bad, ROLE_bad/LAYER, how many elements were NaN, Inf, huge or out of range in a step.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

from aorta_collectors.analysis.captures import NONE, Process, Trial
from aorta_collectors.analysis.database import Database
from aorta_collectors.analysis.summaries import started_at
from aorta_collectors.errors import CollectorsError

#: What the event writer calls its files.
FILES = "events.out.tfevents.*"

_MOST_LETTERS = 200


def write_tensorboard(database: Database, target: Path, wanted: str) -> None:
    """Write the log directories.

    Args:
        target: A directory that is there.
        wanted: A condition on records.

    Raises:
        CollectorsError: tensorboard is not installed.
    """
    try:
        from tensorboard.summary.writer.event_file_writer import EventFileWriter
    except ImportError:
        raise CollectorsError(
            "tensorboard is not installed. It writes the event files: pip install 'aorta-collectors[tensorboard]'"
        ) from None
    directories, clocks = _directories(database, target), _clocks(database)
    for key, steps in groupby(_steps(database, wanted), key=lambda row: row[:4]):
        writer = EventFileWriter(str(directories[key]))
        try:
            _write(writer.add_event, steps, clocks[key])
        finally:
            writer.close()


def _steps(database: Database, wanted: str) -> Iterable[tuple[Any, ...]]:
    """A row for each tensor and step of a process; calls of a step that are several are one value."""
    sql = f"""
        SELECT run, cell, trial, process, step, min(t) AS first,
            concat(layer, CASE WHEN param_name <> '' THEN '.' END, param_name, tensor_path) AS tensor, role,
            max(finite_abs_max),
            CASE WHEN bool_or(bool_or(bad)) OVER (PARTITION BY run, cell, trial, process, tensor, role) THEN
                sum(nan_count + inf_count + coalesce(huge_count, 0) + coalesce(oob_count, 0)) END
        FROM records WHERE {wanted}
        GROUP BY run, cell, trial, process, step, tensor, role
        ORDER BY run, cell, trial, process, step, first
    """
    return (row for batch in database.batches(sql) for row in batch)


def _write(add: Callable[[Any], None], steps: Iterable[tuple[Any, ...]], clock: float) -> None:
    """One event for each step, with all its values."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary

    for step, rows in groupby(steps, key=lambda row: row[4]):
        values, time = [], 0.0
        for *_, t, tensor, role, largest, bad in rows:
            time = time or t + clock
            values.append(Summary.Value(tag=f"{role}_abs_max/{tensor}", simple_value=_single(largest)))
            if bad is not None:
                values.append(Summary.Value(tag=f"{role}_bad/{tensor}", simple_value=float(bad)))
        add(Event(wall_time=time, step=step, summary=Summary(value=values)))


def _single(value: float | None) -> float:
    """For a float of 32 bits, which is what a scalar is: what is larger is infinite there."""
    return math.nan if value is None else value if abs(value) < 3.4028235e38 else math.copysign(math.inf, value)


def _clocks(database: Database) -> Mapping[tuple[Any, ...], float]:
    """What is added to a process's `t` for the time of day, in seconds: its first record stands when it was armed."""
    sql = "SELECT run, cell, trial, process, min(t) FROM records GROUP BY ALL"
    first = {tuple(key): t for *key, t in database.rows(sql)}
    return {
        (*trial.key, process.stem): started_at(process.summary) - first.get((*trial.key, process.stem), 0.0)
        for trial, process in _all(database)
    }


def _directories(database: Database, target: Path) -> Mapping[tuple[Any, ...], Path]:
    """[RUN/]CELL/TRIAL/PROCESS, with letters alone that are safe in a path; no two are the same."""
    found: dict[tuple[Any, ...], Path] = {}
    taken: set[Path] = set()
    for trial, process in _all(database):
        names = [name for name in (*trial.key, process.stem) if name not in (".", NONE)]
        path = target.joinpath(*map(_safe, names))
        number = 1
        while (place := path if number == 1 else path.with_name(f"{path.name}_{number}")) in taken:
            number += 1
        taken.add(place)
        found[(*trial.key, process.stem)] = place
    return found


def _safe(name: str) -> str:
    safe = re.sub(r"[^\w.+=@,-]", "_", name, flags=re.ASCII)[:_MOST_LETTERS]
    return f"_{safe}" if safe.startswith(".") else safe


def _all(database: Database) -> Iterable[tuple[Trial, Process]]:
    return ((trial, process) for trial in database.captures.trials for process in trial.processes)
