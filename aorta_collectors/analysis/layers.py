"""The layers of one process in the order in which they ran in one step: where magnitude jumps, where bad begins.

One reading of all records finds which process goes bad first; a second one looks at that process alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from aorta_collectors.analysis.captures import trial_place
from aorta_collectors.analysis.database import Database
from aorta_collectors.analysis.magnitude import AGGREGATES, PLACE, ROLE, Magnitude, magnitude
from aorta_collectors.errors import ArtifactError

#: In which order roles are listed: first what the forward shows.
_ROLES = ("track", "act", "input", "loss", "igrad", "wgrad", "bgrad", "weight", "bias")
_CHOSEN = f"layer IS NOT NULL AND (len(?::VARCHAR[]) = 0 OR {ROLE} IN (SELECT unnest(?::VARCHAR[])))"


@dataclass(frozen=True)
class Tensor:
    """Which tensor of a layer.

    Attributes:
        place: The stage of the pipeline, or the module, where a followed tensor was read; else empty.
    """

    layer: str
    role: str
    param_name: str
    tensor_path: str
    place: str


@dataclass(frozen=True)
class FirstBad:
    """The earliest bad record of a process."""

    step: int
    tensor: Tensor
    kind: str


@dataclass(frozen=True)
class Row:
    """One tensor in the step.

    Attributes:
        of: Of all of the layer's calls in the step.
        calls: How many those were.
        growth: Factor to the tensor of the same role that was seen before it in the step.
        bad_since: The first step in which it was bad, up to the one shown; None if it never was.
        begins: Whether the process's first bad record is this one, or one of this tensor in a step before.
    """

    tensor: Tensor
    of: Magnitude
    calls: int
    growth: float | None
    bad_since: int | None
    begins: bool


@dataclass(frozen=True)
class Spread:
    """How far what is bad has come in one role.

    Attributes:
        bad, tensors: In the step.
        first_bad: The first step, over the whole run; None where none is.
        rows: Of the step, in the order in which they were seen.
    """

    role: str
    bad: int
    tensors: int
    first_bad: int | None
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Layers:
    """One step of one process.

    Attributes:
        ranks: Ranks in the trial that have records.
        other_trials: Trials, besides this one, that have records.
        others_bad: How many of them are bad somewhere.
        by_role: What was seen forward comes first.
        absent: Tensors that have records in other steps, and none in this.
    """

    run: str
    cell: str
    trial: str
    process: str
    rank: int
    ranks: int
    other_trials: int
    others_bad: int
    step: int
    first_step: int
    last_step: int
    first_bad: FirstBad | None
    by_role: tuple[Spread, ...]
    absent: int

    def as_json(self) -> dict[str, Any]:
        found = asdict(replace(self, by_role=()))
        first = self.first_bad
        found["first_bad"] = first and {"step": first.step, "kind": first.kind, **asdict(first.tensor)}
        found["by_role"] = [
            {
                **asdict(replace(spread, rows=())),
                "rows": [
                    {
                        **asdict(row.tensor),
                        **row.of.as_json(),
                        "calls": row.calls,
                        "growth": row.growth,
                        "bad_since": row.bad_since,
                        "begins": row.begins,
                    }
                    for row in spread.rows
                ],
            }
            for spread in self.by_role
        ]
        return found


@dataclass(frozen=True)
class _Process:
    run: str
    cell: str
    trial: str
    process: str
    rank: int
    last_step: int
    peak: float
    position: Sequence[float] | None
    first_bad: FirstBad | None

    @property
    def of_trial(self) -> tuple[str, str, str]:
        return self.run, self.cell, self.trial


@dataclass(frozen=True)
class _Seen:
    """The records of one tensor: those of the step that is shown, and those of all others."""

    tensor: Tensor
    rows: list[dict[str, Any]]

    @property
    def here(self) -> dict[str, Any] | None:
        return next((row for row in self.rows if row["here"]), None)

    @property
    def position(self) -> tuple[float, ...]:
        return tuple(self.here["position"]) if self.here is not None else ()

    @property
    def first_bad(self) -> int | None:
        return min((row["first_bad"] for row in self.rows if row["first_bad"] is not None), default=None)

    @property
    def bad_since(self) -> int | None:
        return min((row["bad_since"] for row in self.rows if row["bad_since"] is not None), default=None)


def layers(database: Database, step: int | None = None, roles: Sequence[str] = ()) -> Layers:
    """One step of the first trial in which something is bad, and in there of the process that is bad first.

    Where nothing is bad it is the process with the largest magnitude in the first trial.

    Args:
        step: None for that of the first bad record, or the last one.
        roles: Only these.

    Raises:
        ArtifactError: Nothing is recorded there; the error says what is.
    """
    processes = _processes(database, roles)
    if not processes:
        raise ArtifactError(_nothing(database, roles))
    order = {trial.key: index for index, trial in enumerate(database.captures.trials)}

    def place(process: _Process) -> tuple[Any, ...]:
        at = process.position or ()
        return process.position is None, order[process.of_trial], at, -process.peak, process.rank, process.process

    taken = min(processes, key=place)
    of_trial = [process for process in processes if process.of_trial == taken.of_trial]
    others = {process.of_trial for process in processes} - {taken.of_trial}
    others_bad = {process.of_trial for process in processes if process.first_bad is not None} & others
    at = step if step is not None else taken.first_bad.step if taken.first_bad is not None else taken.last_step
    tensors = _tensors(database, taken, at, roles)
    steps = [row[end] for seen in tensors for row in seen.rows for end in ("first_step", "last_step")]
    by_role: dict[str, list[_Seen]] = {}
    for seen in tensors:
        by_role.setdefault(seen.tensor.role, []).append(seen)
    if all(seen.here is None for seen in tensors):
        raise ArtifactError(_no_step(database, taken, at))
    spreads = tuple(_spread(role, by_role[role], taken.first_bad) for role in sorted(by_role, key=_turn))
    return Layers(
        taken.run,
        taken.cell,
        taken.trial,
        taken.process,
        taken.rank,
        len({process.rank for process in of_trial}),
        len(others),
        len(others_bad),
        at,
        min(steps),
        max(steps),
        taken.first_bad,
        spreads,
        sum(seen.here is None for seen in tensors),
    )


def _turn(role: str) -> tuple[int, str]:
    return (_ROLES.index(role) if role in _ROLES else len(_ROLES), role)


def _nothing(database: Database, roles: Sequence[str]) -> str:
    there = database.rows(f"SELECT DISTINCT {ROLE} FROM records r WHERE layer IS NOT NULL ORDER BY 1")
    if there:
        return f"nothing is recorded of role {', '.join(roles)}; there is: {', '.join(role for (role,) in there)}"
    where = database.captures.path
    return f"no records are in {where}: there are summaries at most; NANLOG_SAMPLE_EVERY=1 records each step"


def _no_step(database: Database, of: _Process, step: int) -> str:
    near = database.rows(
        """SELECT max(step) FILTER (step < ?), min(step) FILTER (step > ?) FROM records
        WHERE run = ? AND cell = ? AND trial = ? AND process = ?""",
        [step, step, of.run, of.cell, of.trial, of.process],
    )[0]
    there = " and ".join(str(found) for found in near if found is not None)
    of_process = ", ".join(part for part in (trial_place(*of.of_trial), of.process) if part)
    return f"nothing is recorded of step {step} of {of_process}; the nearest steps that are: {there}"


def _processes(database: Database, roles: Sequence[str]) -> list[_Process]:
    rows = database.dicts(
        f"""SELECT run, cell, trial, process, any_value(rank) AS rank, max(step) AS last_step,
            coalesce(max(abs(finite_abs_max)), 0) AS peak,
            min(position) FILTER (kind IS NOT NULL) AS position,
            arg_min(step, position) FILTER (kind IS NOT NULL) AS bad_step,
            arg_min([layer, {ROLE}, coalesce(param_name, ''), coalesce(tensor_path, ''), {PLACE}, kind], position)
                FILTER (kind IS NOT NULL) AS bad
        FROM records r WHERE {_CHOSEN} GROUP BY run, cell, trial, process""",
        [list(roles), list(roles)],
    )
    found = []
    for row in rows:
        step, bad = row.pop("bad_step"), row.pop("bad")
        found.append(_Process(**row, first_bad=None if bad is None else FirstBad(step, Tensor(*bad[:5]), bad[5])))
    return found


def _tensors(database: Database, of: _Process, step: int, roles: Sequence[str]) -> list[_Seen]:
    """Each tensor of the process, in the order in which they were seen in the step."""
    rows = database.dicts(
        f"""SELECT layer, {ROLE} AS role, coalesce(r.param_name, '') AS param_name,
            coalesce(r.tensor_path, '') AS tensor_path, {PLACE} AS place, r.step = ?::BIGINT AS here,
            count(*) AS calls, min(r.position) AS position, min(r.step) AS first_step, max(r.step) AS last_step,
            min(r.step) FILTER (kind IS NOT NULL) AS first_bad,
            min(r.step) FILTER (kind IS NOT NULL AND r.step <= ?::BIGINT) AS bad_since, {AGGREGATES}
        FROM records r WHERE run = ? AND cell = ? AND trial = ? AND process = ? AND {_CHOSEN} GROUP BY ALL""",
        [step, step, of.run, of.cell, of.trial, of.process, list(roles), list(roles)],
    )
    found: dict[Tensor, _Seen] = {}
    for row in rows:
        tensor = Tensor(*(row[name] for name in ("layer", "role", "param_name", "tensor_path", "place")))
        found.setdefault(tensor, _Seen(tensor, [])).rows.append(row)
    return sorted(found.values(), key=lambda seen: seen.position)


def _spread(role: str, tensors: Sequence[_Seen], first_bad: FirstBad | None) -> Spread:
    rows: list[Row] = []
    before: float | None = None
    for seen in tensors:
        if seen.here is None:
            continue
        of = magnitude(seen.here)
        growth = of.abs_max / before if of.abs_max and before else None
        before = of.abs_max or before
        begins = first_bad is not None and seen.tensor == first_bad.tensor and seen.bad_since is not None
        rows.append(Row(seen.tensor, of, seen.here["calls"], growth, seen.bad_since, begins))
    bad = [seen.first_bad for seen in tensors if seen.first_bad is not None]
    return Spread(role, sum(row.of.kind is not None for row in rows), len(rows), min(bad, default=None), tuple(rows))
