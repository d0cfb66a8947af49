"""The run-up to a bad value: the magnitudes of its tensor in the steps before, and what they ran into."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from aorta_collectors.analysis.captures import Captures
from aorta_collectors.analysis.database import Database
from aorta_collectors.analysis.dtypes import LIMITS

#: Run, cell, trial and process.
Key = tuple[str, str, str, str]

#: The columns of one.
KEY = ("run", "cell", "trial", "process")
# One tensor over the steps.
_TENSOR = ("layer_name", "direction", "role", "param_name", "tensor_path", "invocation", "phase", "checkpoint")
_MOST_STEPS = 10


@dataclass(frozen=True)
class RunUp:
    """The magnitude of one tensor before it went bad.

    Attributes:
        steps: In their order, the last one before the bad step.
        magnitudes: Largest finite magnitudes in them.
        limit: What the values ran into: the threshold where they are huge, else the dtype's largest number.
        limit_of: "threshold", or the dtype such as "float16".
    """

    steps: tuple[int, ...]
    magnitudes: tuple[float, ...]
    limit: float | None = None
    limit_of: str = ""

    @property
    def per_step(self) -> float | None:
        """The mean factor from one step to the next; None where a magnitude of 0, or one step alone, tells of none."""
        first, last, steps = self.magnitudes[0], self.magnitudes[-1], self.steps[-1] - self.steps[0]
        if steps <= 0 or first <= 0 or last <= 0:
            return None
        return float(math.exp((math.log(last) - math.log(first)) / steps))


def run_ups(faults: Mapping[Key, Mapping[str, Any]], captures: Captures, database: Database) -> dict[Key, RunUp]:
    """Of the bad values of some processes, as far as there are records of the steps before.

    Args:
        faults: Each with `step`, `seq`, `kind`, and what tells its tensor from others; what is None may be anything.

    Raises:
        CollectorsError: The records cannot be read.
    """
    if not faults:
        return {}
    wanted = [
        {**dict(zip(KEY, key, strict=True)), **{name: fault[name] for name in (*_TENSOR, "step", "seq")}}
        for key, fault in faults.items()
    ]
    types = dict.fromkeys((*KEY, *_TENSOR), "VARCHAR") | dict.fromkeys(("invocation", "step", "seq"), "BIGINT")
    of_process = " AND ".join(f"r.{name} = w.{name}" for name in KEY)
    same = " AND ".join(f"(w.{name} IS NULL OR r.{name} IS NOT DISTINCT FROM w.{name})" for name in _TENSOR)
    key = ", ".join(f"r.{name}" for name in KEY)
    rows = database.rows(
        f"SELECT {key}, r.step, r.finite_abs_max, r.dtype "
        f"FROM records r JOIN (SELECT unnest(from_json(?, ?), max_depth := 2)) w "
        f"ON {of_process} AND r.layer_name = w.layer_name "
        f"WHERE {same} AND (r.step < w.step OR (r.step = w.step AND r.seq < w.seq)) AND isfinite(r.finite_abs_max) "
        f"QUALIFY row_number() OVER (PARTITION BY {key} ORDER BY r.position DESC) <= {_MOST_STEPS} "
        f"ORDER BY r.position",
        [orjson.dumps(wanted).decode(), orjson.dumps([types]).decode()],
    )
    before: dict[Key, list[tuple[int, float, str | None]]] = {}
    for run, cell, trial, process, *row in rows:
        before.setdefault((run, cell, trial, process), []).append((row[0], row[1], row[2]))
    thresholds = _thresholds(captures)
    found = {}
    for place, of_tensor in before.items():
        steps, magnitudes, dtypes = zip(*of_tensor, strict=True)
        found[place] = RunUp(steps, magnitudes, *_limit(str(faults[place]["kind"]), dtypes[-1], thresholds.get(place)))
    return found


def _thresholds(captures: Captures) -> dict[Key, float]:
    """Beyond which a value is huge, of each process that tells."""
    found: dict[Key, float] = {}
    for trial in captures.trials:
        for process in trial.processes:
            value = process.summary.get("config", {}).get("huge_threshold")
            if isinstance(value, int | float) and process.summary["config"].get("huge_headroom") is None:
                found[(*trial.key, process.stem)] = float(value)
    return found


def _limit(kind: str, dtype: str | None, threshold: float | None) -> tuple[float | None, str]:
    if kind == "huge":
        return threshold, "threshold" if threshold is not None else ""
    limits = LIMITS.get(dtype or "")
    if kind == "oob" or limits is None or dtype is None:
        return None, ""
    return limits.max, dtype.removeprefix("torch.")
