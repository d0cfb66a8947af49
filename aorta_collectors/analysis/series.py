"""What a trajectory is made of: series of points, each with a magnitude and what is bad in it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from aorta_collectors.analysis.magnitude import Magnitude


@dataclass(frozen=True)
class Point:
    """What was seen of a tensor in one step, or the worst of some.

    Attributes:
        step: The first of the steps.
        steps: How many steps have records among them.
        bad_step: The first of them in which something is bad.
        growth: Factor per step since the step recorded before; None for the first, and where some have no magnitude.
    """

    step: int
    steps: int
    bad_step: int | None
    of: Magnitude
    growth: float | None = None

    def as_json(self) -> dict[str, Any]:
        of = self.of.as_json()
        return {"step": self.step, "steps": self.steps, "bad_step": self.bad_step, "growth": self.growth, **of}


@dataclass(frozen=True)
class Series:
    """One tensor of one layer in one process.

    Attributes:
        place: The stage of the pipeline, or the module, where a followed tensor was read; else empty.
        invocation: The call within the step; 0 where all calls are taken together.
        steps: How many have records.
        peak: The largest finite magnitude.
        points: Over all of its steps, each the worst of `Trajectory.steps_per_point` steps.
        rows: Of single steps: those around the first bad one, or those that were asked for.
    """

    run: str
    cell: str
    trial: str
    process: str
    rank: int
    layer: str
    role: str
    param_name: str
    tensor_path: str
    place: str
    invocation: int
    first_step: int
    last_step: int
    steps: int
    first_bad: int | None
    first_kind: str | None
    peak: float | None
    dtype: str | None
    points: tuple[Point, ...]
    rows: tuple[Point, ...]

    def as_json(self) -> dict[str, Any]:
        listed = {name: [point.as_json() for point in getattr(self, name)] for name in ("points", "rows")}
        return {**{entry.name: getattr(self, entry.name) for entry in fields(self)}, **listed}


@dataclass(frozen=True)
class Elsewhere:
    """Another tensor of one of the layers that is bad, and not among the series."""

    layer: str
    role: str
    first_bad: int


@dataclass(frozen=True)
class Trajectory:
    """What was asked for.

    Attributes:
        series: Of each process first the one that goes bad first, or is largest.
        more: Series that were left out.
        elsewhere: What is bad in roles that were not asked for, the earliest first.
        without: Trials (run, cell, trial) that have no record of these layers.
    """

    layers: tuple[str, ...]
    first_step: int
    last_step: int
    steps_per_point: int
    series: tuple[Series, ...]
    more: int
    elsewhere: tuple[Elsewhere, ...]
    without: tuple[tuple[str, str, str], ...]

    def as_json(self) -> dict[str, Any]:
        return {
            "layers": list(self.layers),
            "first_step": self.first_step,
            "last_step": self.last_step,
            "steps_per_point": self.steps_per_point,
            "series": [series.as_json() for series in self.series],
            "more_series": self.more,
            "bad_in_other_roles": [asdict(entry) for entry in self.elsewhere],
            "without_records": [dict(zip(("run", "cell", "trial"), key, strict=True)) for key in self.without],
        }
