"""Where each brick lies under the machine's roofline.

After Williams, Waterman and Patterson, "Roofline: an insightful visual performance model for multicore architectures"
(CACM 52, 2009): at an intensity of I operations a byte no more is reached than min(peak, I x bandwidth).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aorta_collectors.analysis.numerics.bricks import Brick


@dataclass(frozen=True)
class Roofline:
    """What the slowest of the ranks' machines reaches, as it was measured.

    Attributes:
        device: Its name; of several different ones, all.
        flops_per_s: Of a matrix product, by dtype.
    """

    device: str
    flops_per_s: Mapping[str, float]
    bytes_per_s: float
    launch_us: float
    threads: int

    def peak(self, dtype: str | None) -> tuple[str, float] | None:
        """The dtype that a brick of `dtype` is held against, and its peak: its own, float32's, or the highest."""
        for name in (dtype, "float32"):
            if name in self.flops_per_s:
                return str(name), self.flops_per_s[str(name)]
        return max(self.flops_per_s.items(), key=lambda entry: entry[1], default=None)


@dataclass(frozen=True)
class Point:
    """A brick under the roofline.

    Attributes:
        intensity: Operations a byte; None where it moves none, or what it does was not counted.
        flops_per_s, bytes_per_s: Reached.
        roof_flops_per_s: Allowed at this intensity.
        roof_dtype: Whose peak that is.
    """

    brick: Brick
    intensity: float | None
    flops_per_s: float | None
    bytes_per_s: float | None
    roof_flops_per_s: float | None
    roof_dtype: str | None


def roofline_of(summaries: Sequence[Mapping[str, Any]]) -> Roofline | None:
    """None where no rank has measured one."""
    found = [summary["roofline"] for summary in summaries if summary.get("roofline")]
    if not found:
        return None
    dtypes = dict.fromkeys(dtype for roofline in found for dtype in roofline["flops_per_s"])
    return Roofline(
        ", ".join(dict.fromkeys(roofline["device"] for roofline in found)),
        {
            dtype: min(roofline["flops_per_s"][dtype] for roofline in found if dtype in roofline["flops_per_s"])
            for dtype in dtypes
        },
        min(roofline["bytes_per_s"] for roofline in found),
        max(roofline["launch_us"] for roofline in found),
        min(roofline["threads"] for roofline in found),
    )


def points_of(bricks: Sequence[Brick], roofline: Roofline | None) -> tuple[Point, ...]:
    """A point for each brick, in their order."""
    return tuple(_point(brick, roofline) for brick in bricks)


def _point(brick: Brick, roofline: Roofline | None) -> Point:
    seconds = (brick.self_us_per_call or 0.0) / 1e6
    flops_per_s, bytes_per_s = (
        amount / seconds if amount is not None and seconds else None for amount in (brick.flops, brick.bytes)
    )
    intensity = brick.flops / brick.bytes if brick.flops is not None and brick.bytes else None
    peak = roofline.peak(brick.dtype) if roofline is not None else None
    roof = min(peak[1], intensity * roofline.bytes_per_s) if roofline and peak and intensity is not None else None
    return Point(brick, intensity, flops_per_s, bytes_per_s, roof, peak[0] if peak and roof is not None else None)
