"""Where it first goes bad: of each process, of each trial over all its ranks, and what led there.

What a summary says and what the records say are put together: records may be cut or gone, and the summary of a process
that still runs may be older than its records. A value that is bad by design, as a mask of -inf, is told and decides
nothing where the summary's `origin` knows better.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from aorta_collectors.analysis.captures import Captures, Process, Trial
from aorta_collectors.analysis.database import Database
from aorta_collectors.analysis.run_up import KEY, Key, RunUp, run_ups
from aorta_collectors.api import Verdict
from aorta_collectors.evidence.receipt import Receipt

Found = Mapping[str, Any]

#: What is told of a bad value, as far as it is known: fields of a record, and `kind`.
FIELDS = (
    "step",
    "training_step",
    "layer",
    "layer_name",
    "direction",
    "role",
    "kind",
    "param_name",
    "tensor_path",
    "phase",
    "batch_id",
    "checkpoint",
    "invocation",
    "optimizer_step",
    "evaluation",
    "seq",
    "dtype",
    "shape",
    "nan_count",
    "inf_count",
    "huge_count",
    "oob_count",
    "numel",
    "finite_abs_max",
)
# The part of the step in which the stages of an origin lie.
_DIRECTIONS = {
    "parameter": "param",
    "data": "fwd",
    "forward": "fwd",
    "loss": "fwd",
    "backward": "bwd",
    "optimizer": "grad",
}


@dataclass(frozen=True)
class OfProcess:
    """What went bad first in one process.

    Attributes:
        process: The stem of its files' names.
        steps: Steps that it began, evaluations included.
        training_steps: Without them.
        running: Whether its summary is not the last one: it runs, or was killed.
        first: The first value that is NaN, Inf, huge or out of range (FIELDS).
        first_nonfinite: The first that is NaN or Inf.
        origin: The summary's, whatever its stage.
        by_design: What `first` is, where it is bad by design, such as "mask".
        fault: What counts: `first`, or the origin after a first that is bad by design; None where nothing counts.
        position: Of the fault, among those of all ranks of the trial (layer_numerics/order.py).
        run_up: To the fault, where records tell.
    """

    process: str
    rank: int
    restart: int
    steps: int
    training_steps: int
    running: bool = False
    first: Found | None = None
    first_nonfinite: Found | None = None
    origin: Found | None = None
    by_design: str = ""
    fault: Found | None = None
    position: tuple[float, ...] = ()
    run_up: RunUp | None = None


@dataclass(frozen=True)
class OfTrial:
    """What went bad first in a trial.

    Attributes:
        processes: By rank and attempt. Of a pruned trial, the one that its receipt names.
        earliest: Of all ranks; None where nothing went bad.
    """

    trial: Trial
    processes: tuple[OfProcess, ...]

    @property
    def earliest(self) -> OfProcess | None:
        return min(
            (process for process in self.processes if process.fault is not None),
            key=lambda process: (process.position, process.process),
            default=None,
        )

    @property
    def verdict(self) -> str | None:
        """What verification said; None where it has not been: the trial runs, or there is no sweep."""
        return self.trial.receipt.verdict if self.trial.receipt is not None else None

    @property
    def passed(self) -> bool | None:
        """What the host said of the trial."""
        return self.trial.passed

    @property
    def covered(self) -> int:
        """Training steps that every rank that ran a model has begun, in its last attempt.

        Of several programs of a rank, the longest counts.
        """
        of_rank: dict[int, tuple[int, int]] = {}
        for process in (process for process in self.processes if process.steps):
            reached = (process.restart, process.training_steps)
            of_rank[process.rank] = max(of_rank.get(process.rank, reached), reached)
        return min((steps for _, steps in of_rank.values()), default=0)

    @property
    def steps(self) -> int:
        """Steps of the rank that began most."""
        return max((process.steps for process in self.processes), default=0)

    @property
    def running(self) -> bool:
        return any(process.running for process in self.processes)


def first_bad(captures: Captures, database: Database) -> list[OfTrial]:
    """Of every trial, also of those without evidence. Reads the records twice, however many trials there are.

    Raises:
        CollectorsError: They cannot be read.
    """
    recorded = _recorded(database)
    found: dict[Key, OfProcess] = {}
    for trial in captures.trials:
        for process in trial.processes:
            key = (*trial.key, process.stem)
            found[key] = _of_process(process, *recorded.get(key, (None, None)))
    faults = {key: of.fault for key, of in found.items() if of.fault is not None}
    for key, run_up in run_ups(faults, captures, database).items():
        found[key] = replace(found[key], run_up=run_up)
    return [
        OfTrial(trial, tuple(found[(*trial.key, process.stem)] for process in trial.processes) or _of_receipt(trial))
        for trial in captures.trials
    ]


def _recorded(database: Database) -> dict[Key, Sequence[Found | None]]:
    """The first bad, and the first not finite record of each process that has one."""
    fields = ", ".join(f"{name!r}: {name}" for name in (*FIELDS, "position"))
    first = f"arg_min({{{fields}}}, position)"
    rows = database.rows(
        f"SELECT {', '.join(KEY)}, {first}, {first} FILTER (kind IN ('nan', 'inf')) FROM records "
        f"WHERE kind IS NOT NULL GROUP BY ALL"
    )
    return {(run, cell, trial, process): firsts for run, cell, trial, process, *firsts in rows}


def _of_process(process: Process, first: Found | None, nonfinite: Found | None) -> OfProcess:
    summary = process.summary
    first = _earlier(process, first, _short(summary.get("first_bad")))
    nonfinite = _earlier(process, nonfinite, _short(summary.get("first_nonfinite")))
    if nonfinite is None and first is not None and first["kind"] in ("nan", "inf"):
        nonfinite = first  # the stock logger's summary tells of the first bad alone
    origin = summary.get("origin")
    by_design = _by_design(summary, first, origin)
    fault = first
    if by_design:
        fault = _of_origin(origin) if origin is not None else None
    return OfProcess(
        process=process.stem,
        rank=process.rank,
        restart=process.line.restart,
        steps=summary["steps_seen"],
        training_steps=summary["steps_seen"] - summary.get("evaluation_steps", 0),
        running=summary.get("status") == "running",
        first=_fields(first),
        first_nonfinite=_fields(nonfinite),
        origin=origin,
        by_design=by_design,
        fault=_fields(fault),
        position=() if fault is None else _position(process, fault),
    )


def _fields(found: Found | None) -> Found | None:
    return None if found is None else {name: found.get(name) for name in FIELDS}


def _short(found: Found | None) -> Found | None:
    """A summary's short form of a record, with a record's names."""
    if found is None:
        return None
    evaluation_steps = found.get("evaluation_steps") or 0
    return {
        **found,
        "layer": found.get("module_path") or found["layer"],
        "layer_name": found["layer"],
        "training_step": found["step"] - evaluation_steps,
    }


def _of_origin(origin: Found) -> Found:
    return {
        **origin,
        "layer": origin["module"],
        "direction": _DIRECTIONS.get(origin["stage"]),
        "training_step": origin["step"],
    }


def _position(process: Process, found: Found) -> tuple[float, ...]:
    if found.get("position"):
        return tuple(found["position"])
    known = {name: value for name, value in found.items() if value is not None}
    return process.line.position(known, known.get("matmul_calls_so_far", 0))


def _earlier(process: Process, recorded: Found | None, of_summary: Found | None) -> Found | None:
    """The earlier one; the record where it is the one that the summary means, since it tells more."""
    found = [entry for entry in (recorded, of_summary) if entry is not None]
    return min(found, key=lambda entry: _place(process, entry), default=None)


def _place(process: Process, found: Found) -> tuple[Any, ...]:
    restart, training_step, evaluation, part, _, seq, _ = _position(process, found)
    # The stock logger's places are times in the one, and calls of layers in the other.
    return restart, training_step, evaluation, part, seq if found.get("seq") is not None else -1


def _by_design(summary: Found, first: Found | None, origin: Found | None) -> str:
    """Why the first bad value is none, where the search for the origin has told; empty otherwise."""
    if first is None or first["kind"] not in ("nan", "inf") or summary.get("status") != "complete":
        return ""
    if origin is not None and origin["step"] <= first["step"]:
        return ""
    expected = [entry["kind"] for entry in summary.get("expected", ()) if entry["first"]["step"] <= first["step"]]
    return ", ".join(dict.fromkeys(expected))


def _of_receipt(trial: Trial) -> tuple[OfProcess, ...]:
    """What the receipt has kept of artifacts that are gone."""
    receipt = trial.receipt
    if receipt is None or receipt.verdict != Verdict.PRUNED.value:
        return ()
    metrics = {name.removeprefix("layer_numerics_"): value for name, value in receipt.metrics.items()}
    steps = metrics.get("steps")
    if not isinstance(steps, int):
        return ()
    found = None
    step = metrics.get("first_bad_step")
    if isinstance(step, int) and not metrics.get("first_nonfinite_by_design"):
        found = {
            **{name: metrics.get(f"first_bad_{name}") for name in FIELDS},
            "training_step": step,
            "layer_name": metrics.get("first_bad_layer"),
        }
    rank, restart = metrics.get("first_bad_rank"), metrics.get("first_bad_attempt")
    return (
        OfProcess(
            process="receipt",
            rank=rank if isinstance(rank, int) else 0,
            restart=restart if isinstance(restart, int) else 0,
            steps=steps,
            training_steps=min(_kept_steps(receipt), default=steps),
            first=found,
            fault=found,
            position=(step,) if isinstance(step, int) else (),
        ),
    )


def _kept_steps(receipt: Receipt) -> Iterator[int]:
    """Training steps that each process began which ran a model, and that no later attempt stands for."""
    processes = receipt.details.get("processes")
    for entry in processes if isinstance(processes, list) else ():
        steps = entry.get("steps_seen")
        if isinstance(steps, int) and steps > 0 and entry.get("state") != "superseded":
            yield steps - (entry.get("evaluation_steps") or 0)
