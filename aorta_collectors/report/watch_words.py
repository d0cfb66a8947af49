"""How the state of a running trial is said, in phrases that fit a screen as well as a log."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from aorta_collectors.analysis.snapshot import Cell, Moment, Progress, Rank
from aorta_collectors.report.wording import layer, number, tensor, text

#: Of a trial, by whether the host says that it passed.
OUTCOMES: Mapping[bool | None, str] = MappingProxyType({True: "passed", False: "failed", None: "no outcome"})


def duration(seconds: float) -> str:
    """Such as "0.4 s", "45 s", "3 min 5 s" and "2 h 4 min"."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60} min {whole % 60} s" if whole < 3600 else f"{whole // 3600} h {whole % 3600 // 60} min"


def place(snapshot: Moment) -> str:
    """Which trial is shown."""
    return text(snapshot.path) if snapshot.trial == "-" else f"{text(snapshot.cell)}, trial {text(snapshot.trial)}"


def pace(progress: Progress, *, since: bool) -> list[str]:
    """How far it is and how fast, in short phrases; with `since`, for how long while it runs."""
    parts = [f"step {progress.steps}" if progress.steps else "no step yet"]
    if progress.steps_per_s is not None:
        rate = progress.steps_per_s
        parts.append(f"{number(rate)} steps/s" if rate >= 0.1 else f"{duration(1 / rate)} a step")
    if since and not progress.has_ended and progress.steps:
        parts.append(f"last step {duration(progress.since_step_s)} ago")
    if progress.overhead is not None:
        parts.append(f"overhead {100 * progress.overhead:.2g} %")
    if progress.restart:
        parts.append(f"attempt {progress.restart + 1}")
    return parts


def findings(progress: Progress) -> list[str]:
    """What is bad, a sentence each: the first bad value, the first NaN or Inf if that is another one, the origin."""
    several = progress.world_size > 1 or len(progress.ranks) > 1
    told = []
    first, lost, origin = progress.first_bad, progress.first_nonfinite, progress.origin
    if first is not None:
        told.append(f"first bad: {_bad_place(first, several)}")
    if lost is not None and (first is None or (lost["step"], lost.get("seq")) != (first["step"], first.get("seq"))):
        told.append(f"first NaN or Inf: {_bad_place(lost, several)}")
    if origin is not None:
        rank = f", rank {origin['rank']}" if several else ""
        where = f"{origin['stage']} of step {origin['step']}{rank}, {text(origin['module'])}"
        told.append(f"origin: {where}: {text(origin['reason'])}")
    return told


def first_bad_of(cell: Cell) -> str:
    """Such as "step 18 huge bwd over_arch.model.1"; empty where nothing was bad."""
    if cell.first_bad is None:
        return ""
    words = [str(cell.first_bad[key]) for key in ("step", "kind", "direction", "layer") if cell.first_bad.get(key)]
    return f"step {text(' '.join(words))}"


def odd(rank: Rank) -> str | None:
    """What is not as it should be with a process; None if all is well."""
    if rank.state == "gone":
        return f"gone: there is no process {rank.pid} on this host"
    if rank.state == "killed" or (rank.state == "ended" and rank.ended_by not in (None, "exit")):
        return f"{rank.state}: {text(rank.ended_by or '')}"
    if rank.write_error:
        return f"cannot write: {text(rank.write_error)}"
    told = [f"{rank.behind} steps behind"] if rank.behind else []
    if rank.is_slow:
        told.append(f"silent for {duration(rank.silent_s)}")
    return ", ".join(told) or None


def _bad_place(found: Mapping[str, Any], several: bool) -> str:
    rank = f", rank {found['rank']}" if several else ""
    phase = f" at {text(found['phase'])}" if found.get("direction") == "pipeline" and found.get("phase") else ""
    return f"step {found['step']}{rank}, {found['kind']} in {layer(found)} {tensor(found)}{phase}"
