"""Records as they come in, folded into what is shown of them: memory does not grow with their number.

Whatever order the records of several ranks come in, the result is the same, as long as there are no more tensors than
are told apart.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from aorta_collectors.analysis.dtypes import LIMITS, headroom
from aorta_collectors.analysis.live_lines import Fitting
from aorta_collectors.analysis.magnitude import KINDS
from aorta_collectors.analysis.snapshot import BadTensor, Largest, Magnitudes, Point
from aorta_collectors.layer_numerics.order import Position
from aorta_collectors.printable import printable

_MOST_TENSORS = 20_000
_MOST_STEPS = 200
# What a snapshot holds: more than fits on a screen.
_SHOWN = 40
_NAME = 300
_TENSOR = ("module_path", "direction", "role", "param_name", "tensor_path")

_Key = tuple[str, ...]


class _Peak(NamedTuple):
    """Of two, the greater one is nearer to its dtype's limit, or as near and earlier."""

    share: float
    abs_max: float
    dtype: str
    minus_step: int
    minus_rank: int


class _Bad(NamedTuple):
    """Of a tensor; where it stands first is that of its first bad record."""

    position: Position
    step: int
    rank: int
    severity: int
    last_step: int
    records: int


_NOTHING = _Peak(0.0, 0.0, "", 0, 0)


class LiveRecords:
    """Of one trial."""

    def __init__(self) -> None:
        self._peaks: dict[_Key, _Peak] = {}
        self._bad: dict[_Key, _Bad] = {}
        self._steps: dict[int, tuple[_Peak, int]] = {}  # with the severity of what is bad
        self._lines = Fitting("layer_numerics.record")

    def take(self, lines: Sequence[bytes], position: Callable[[Mapping[str, Any]], Position]) -> None:
        """Take in lines of one process.

        Args:
            position: Where a record stands among those of all ranks.
        """
        for record in self._lines.lines(lines):
            self._fold(record, position)
        for step in sorted(self._steps)[:-_MOST_STEPS]:
            del self._steps[step]

    def state(self, passed_over_bytes: int) -> Magnitudes:
        """What they say so far.

        Args:
            passed_over_bytes: What was not handed in.
        """
        worst = heapq.nsmallest(_SHOWN, self._peaks.items(), key=lambda item: (-item[1].share, item[0]))
        bad = heapq.nsmallest(_SHOWN, self._bad.items(), key=lambda item: (item[1].position, item[0]))
        return Magnitudes(
            worst=tuple(
                Largest(_named(key), -peak.minus_step, -peak.minus_rank, *_magnitude(peak)) for key, peak in worst
            ),
            trend=tuple(
                Point(step, KINDS[severity], *_magnitude(peak))
                for step, (peak, severity) in sorted(self._steps.items())
            ),
            bad=tuple(
                BadTensor(_named(key), seen.step, seen.rank, str(KINDS[seen.severity]), seen.last_step, seen.records)
                for key, seen in bad
            ),
            num_bad=len(self._bad),
            newest_step=max(self._steps, default=None),
            passed_over_bytes=passed_over_bytes,
            unreadable_lines=self._lines.unreadable,
        )

    def _fold(self, record: Mapping[str, Any], position: Callable[[Mapping[str, Any]], Position]) -> None:
        step, rank, largest = record["step"], record["rank"], record["finite_abs_max"]
        key = tuple(
            printable(record.get(name) or "", _NAME)
            for name in ("module_path" if record.get("module_path") else "layer_name", *_TENSOR[1:])
        )
        limits = LIMITS.get(record["dtype"])
        peak = _NOTHING
        if limits is not None and largest is not None and 0 < largest < math.inf:
            peak = _Peak(largest / limits.max, largest, record["dtype"], -step, -rank)
            if key in self._peaks or len(self._peaks) < _MOST_TENSORS:
                self._peaks[key] = max(peak, self._peaks.get(key, peak))
        severity = _severity(record)
        of_step = self._steps.get(step, (_NOTHING, 0))
        self._steps[step] = max(peak, of_step[0]), max(severity, of_step[1])
        if severity and (key in self._bad or len(self._bad) < _MOST_TENSORS):
            seen = _Bad(position(record), step, rank, severity, step, 0)
            before = self._bad.get(key, seen)
            last_step, records = max(before.last_step, step), before.records + 1
            self._bad[key] = min(before, seen)._replace(last_step=last_step, records=records)


def _named(key: _Key) -> Mapping[str, str]:
    return dict(zip(_TENSOR, key, strict=True))


def _magnitude(peak: _Peak) -> tuple[float | None, float | None, str | None]:
    """The magnitude, its headroom and its dtype."""
    return (peak.abs_max, headroom(peak.abs_max, peak.dtype), peak.dtype) if peak.dtype else (None, None, None)


def _severity(record: Mapping[str, Any]) -> int:
    counts = (record.get("oob_count"), record["huge_count"], record["inf_count"], record["nan_count"])
    return max((severity for severity, count in enumerate(counts, start=1) if count), default=0)
