"""What a run's artifacts say of the points that were asked for, and of values that are not finite."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from aorta_collectors.errors import ArtifactError
from aorta_collectors.evidence.directory import Anchor, ArtifactDirectory

# Metrics that say how much a collector has looked at, of those that look for values which are not finite.
_LOOKED_AT = ("layer_numerics_modules", "numerics_tensors_read")
_MOST_NAMES = 8
# What a program calls to have its own tensors observed.
_CALLS = {"user:": "observe", "grad:": "watch_grad"}
_NONFINITE = "_first_nonfinite_step"


@dataclass
class Observed:
    """What was there.

    Attributes:
        points: By rank, points and names with at least one observation.
        looked: Whether anything was looked at that would show a NaN or Inf.
        nonfinite: Whether one was there.
        unreadable: Why some lines could not be read.
    """

    points: dict[int, set[str]] = field(default_factory=dict)
    looked: bool = False
    nonfinite: bool = False
    unreadable: str = ""

    @property
    def finite(self) -> bool | None:
        """None where nobody looked."""
        return not self.nonfinite if self.looked or self.nonfinite else None

    def missing(self, wanted: Sequence[str]) -> list[str]:
        """Of the points in `wanted`, those that a rank lacks, although it has others."""
        ranks = self.points.values() or [set[str]()]
        return [point for point in wanted if not all(point in found for found in ranks)]

    def told_of(self, missing: Sequence[str]) -> str:
        """Where nothing was observed, what makes a program have such a point, and which ones it had instead."""
        seen = sorted(
            {
                name
                for found in self.points.values()
                for name in found
                if name.startswith(tuple(_CALLS)) or (":" not in name and f"{name}:" not in _CALLS)
            }
        )
        more = f" and {len(seen) - _MOST_NAMES} more" if len(seen) > _MOST_NAMES else ""
        calls = [
            f"does the program call {call}(..., name={json.dumps(point.removeprefix(prefix))})?"
            for point in missing
            for prefix, call in _CALLS.items()
            if point.startswith(prefix)
        ]
        told = f"names seen: {', '.join(seen[:_MOST_NAMES])}{more}" if seen else "no name was seen"
        return f"nothing was observed at {', '.join(missing)} ({' '.join((*calls, told))})"


def observed_in(run: Path, receipts: Sequence[Mapping[str, Any]], metrics: Mapping[str, Any]) -> Observed:
    """Read a run's artifacts.

    Args:
        run: The run's directory.
        receipts: As in run.json.
        metrics: Of the trial's record; a NaN or Inf among them counts.
    """
    found = Observed(looked=any(metrics.get(name) for name in _LOOKED_AT))
    for name, value in metrics.items():
        if name.endswith(_NONFINITE) and not metrics.get(f"{name.removesuffix('_step')}_by_design"):
            found.nonfinite = True
        found.nonfinite |= isinstance(value, float) and value - value != 0
    for receipt in receipts:
        try:
            with Anchor(run).open(run / receipt["artifacts"]) as directory:
                _read(directory, receipt["collector"], found)
        except ArtifactError as error:
            found.unreadable = found.unreadable or str(error)
    return found


def _read(directory: ArtifactDirectory, collector: str, found: Observed) -> None:
    """The lines of <collector>_rank<N>.jsonl, where there are any: one for each observation."""
    for name in directory.sizes():
        if not (name.startswith(f"{collector}_rank") and name.endswith(".jsonl")):
            continue
        for number, line in enumerate(directory.lines(name), 1):
            try:
                content = orjson.loads(line)
                seen = found.points.setdefault(int(content["rank"]), set())
                seen.update((content["point"], content["name"]))
            except (ValueError, KeyError, TypeError):
                # Of a program that was killed, the last line may be half a line.
                found.unreadable = found.unreadable or f"{directory.path / name}: line {number} is no observation"
                continue
            if "nan_count" in content:
                found.looked = True
                found.nonfinite |= bool(content["nan_count"] or content["inf_count"])
