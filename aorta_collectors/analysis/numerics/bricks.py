"""Bricks, the timed modules of a model, over all ranks of a trial."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aorta_collectors.analysis.numerics.phases import steps_counted, steps_ms
from aorta_collectors.analysis.numerics.processes import Processes, weighted
from aorta_collectors.analysis.numerics.significance import median
from aorta_collectors.errors import ArtifactError

_SUGGESTED = 5


@dataclass(frozen=True)
class Brick:
    """One module in one direction. Sums and means are of all ranks.

    Attributes:
        calls: That were timed.
        per_step: Calls in a step; None where no step was measured.
        total_us, self_us: Of all calls, with its parts and without them.
        self_us_per_call: Of one call, without its parts; None where there was no call.
        self_ms_per_step: Of all calls of a step, of one rank; None as per_step.
        share: self_us as a part of the time of all steps; of that of all bricks, where no step was measured.
        mean_us: Of one call, with its parts.
        p50_us, p95_us, p99_us, cv: Of one call on the rank on which it takes longest.
        flops, bytes: Of one call, without its parts.
        allowed_us: What the roofline allows for that; None where it is not known.
        dead_units, saturated_units: On the rank that has the fewest.
        slowest: Label of the rank on which a call takes longest; empty where there is one rank.
        spread: Its time of a call over the median of all ranks; None where there is one rank.
    """

    layer: str
    module_type: str
    step_name: str
    direction: str
    calls: int
    per_step: float | None
    total_us: float
    self_us: float
    self_us_per_call: float | None
    self_ms_per_step: float | None
    share: float | None
    mean_us: float | None
    p50_us: float | None
    p95_us: float | None
    p99_us: float | None
    cv: float | None
    flops: float | None
    bytes: float | None
    dtype: str | None
    operations: int | None
    efficiency: float | None
    allowed_us: float | None
    bound: str | None
    units: int | None
    dead_units: int | None
    saturated_units: int | None
    escalations: int
    slowest: str
    spread: float | None

    @property
    def key(self) -> tuple[str, str]:
        return self.layer, self.direction


def bricks_of(processes: Processes) -> tuple[Brick, ...]:
    """The one with the longest time of its own first."""
    found: dict[tuple[str, str], list[tuple[str, Mapping[str, Any]]]] = {}
    for label, summary in zip(processes.labels, processes.summaries, strict=True):
        for entry in summary.get("bricks", ()):
            found.setdefault((entry["layer"], entry["direction"]), []).append((label, entry))
    steps = steps_counted(processes.summaries)
    whole = steps_ms(processes.summaries) * 1000
    whole = whole or sum(entry["self_us"] for entries in found.values() for _, entry in entries)
    several = len(processes.counted) > 1
    bricks = [_brick(entries, steps, whole, several) for entries in found.values()]
    return tuple(sorted(bricks, key=lambda brick: -brick.self_us))


def _brick(of_ranks: Sequence[tuple[str, Mapping[str, Any]]], steps: int, whole_us: float, several: bool) -> Brick:
    entries = [entry for _, entry in of_ranks]
    calls = sum(entry["calls"] for entry in entries)
    total, own = (sum(entry[key] for entry in entries) for key in ("total_us", "self_us"))
    label, slowest = max(of_ranks, key=lambda found: found[1]["mean_us"] or 0.0)
    middle = median([entry["mean_us"] for entry in entries if entry["mean_us"] is not None])
    per_call = own / calls if calls else None
    # Time allowed over time taken: weighted by the latter, it is that of all calls together.
    efficiency = weighted([(entry["efficiency"], entry["self_us"]) for entry in entries])
    of_bound: Counter[str] = Counter()
    for entry in entries:
        if entry["bound"] is not None:
            of_bound[entry["bound"]] += entry["self_us"] or 1
    operations = weighted([(entry.get("operations"), entry["calls"]) for entry in entries])
    first = entries[0]
    return Brick(
        first["layer"],
        first["module_type"],
        first["step_name"],
        first["direction"],
        calls,
        calls / steps if steps else None,
        total,
        own,
        per_call,
        own / 1000 / steps if steps else None,
        own / whole_us if whole_us else None,
        total / calls if calls else None,
        slowest["p50_us"],
        slowest["p95_us"],
        slowest["p99_us"],
        slowest["cv"],
        weighted([(entry["flops"], entry["calls"]) for entry in entries]),
        weighted([(entry["bytes"], entry["calls"]) for entry in entries]),
        next((entry["dtype"] for entry in entries if entry.get("dtype")), None),
        None if operations is None else round(operations),
        efficiency,
        None if efficiency is None or per_call is None else efficiency * per_call,
        max(of_bound, key=of_bound.__getitem__, default=None),
        _least(entries, "units"),
        _least(entries, "dead_units"),
        _least(entries, "saturated_units"),
        sum(entry["escalations"] for entry in entries),
        label if several else "",
        slowest["mean_us"] / middle if several and middle else None,
    )


def _least(entries: Sequence[Mapping[str, Any]], key: str) -> int | None:
    return min((entry[key] for entry in entries if entry.get(key) is not None), default=None)


def focused(bricks: Sequence[Brick], words: Sequence[str]) -> tuple[Brick, ...]:
    """Those whose path, class or named step contains one of the words, in any case.

    Raises:
        ArtifactError: None does; the error names what is near.
    """
    wanted = [word.casefold() for word in words]
    kept = tuple(brick for brick in bricks if any(word in _searched(brick) for word in wanted))
    if kept or not words or not bricks:
        return kept if words else tuple(bricks)
    names = {part: None for brick in bricks for part in (*brick.layer.split("."), brick.module_type, brick.step_name)}
    known: dict[str, str] = {}
    for name in names:
        if name and not name.isdecimal():
            known.setdefault(name.casefold(), name)
    near = [known[name] for word in wanted for name in difflib.get_close_matches(word, list(known), _SUGGESTED, 0.5)]
    hint = f"near it: {', '.join(dict.fromkeys(near))}" if near else f"there is: {', '.join(list(known.values())[:20])}"
    raise ArtifactError(f"no brick has {' or '.join(map(repr, words))} in its path or class; {hint}")


def _searched(brick: Brick) -> str:
    return f"{brick.layer}\n{brick.module_type}\n{brick.step_name}".casefold()
