"""How near a brick comes to the roofline, and what limits it.

The roofline (see roofline) allows its operations T = max(FLOPs / peak, bytes / bandwidth). Its efficiency is T over its
own time. Launching is left out of T: a thousand tiny operations are inefficient, and the name of what limits them says
why. It can be above 1 where operands come from a cache instead of memory.

What limits it, told by its fastest call, which others on the machine disturbed least:
- host, where operations, as they were timed, and starting them account for less than half of its time: the rest is
  Python, waiting, sleeping, reading. They must do so in the calls in which they were timed as well: where others
  disturbed all calls but these, its fastest call is long for want of a processor, and does not wait for itself. On a
  device, whose operations go on after they were started, where T and starting them account for less than a tenth.
- launch, where starting its operations one by one takes longer than T.
- compute or memory else, by which of the two terms of T is larger. That is the side of the ridge point (peak over
  bandwidth) on which its arithmetic intensity (FLOPs over bytes) lies.
"""

from __future__ import annotations

from typing import NamedTuple

from aorta_collectors.numerics.profile.roofline import Roofline

COMPUTE, MEMORY, LAUNCH, HOST = "compute", "memory", "launch", "host"
# Kernels reach more of the roofline than this as a rule; what waits for the host is far below.
_LEAST_OF_ROOFLINE = 0.1
_LEAST_IN_OPERATIONS = 0.5


class Work(NamedTuple):
    """What one call of a brick computes itself, without its parts.

    Attributes:
        dtype: Of most of its FLOPs, as the roofline names it.
        seconds: That its operations took; None on a device, where they go on after they were started.
        counted_s: That the very calls took, without its parts, in which `seconds` was taken. None where that is not
            known.
    """

    flops: float
    bytes: float
    operations: float
    dtype: str | None
    seconds: float | None = None
    counted_s: float | None = None


class Judgement(NamedTuple):
    """Both None where the work, or the roofline for it, is not known.

    Attributes:
        efficiency: Part of what the roofline allows.
        bound: One of COMPUTE, MEMORY, LAUNCH, HOST.
    """

    efficiency: float | None = None
    bound: str | None = None


def judged(work: Work, own_s: float, least_s: float, roofline: Roofline) -> Judgement:
    """A brick that takes `own_s` seconds, without its parts, for `work`; `least_s` in its fastest call."""
    allowed = roofline.seconds(work.flops, work.dtype, work.bytes)
    if allowed is None or own_s <= 0 or least_s <= 0:
        return Judgement()
    launching = work.operations * roofline.launch_us * 1e-6
    if work.seconds is not None:
        shortest = least_s if work.counted_s is None else min(least_s, work.counted_s)
        is_elsewhere = work.seconds + launching < _LEAST_IN_OPERATIONS * shortest
    else:
        is_elsewhere = allowed + launching < _LEAST_OF_ROOFLINE * least_s
    if is_elsewhere:
        bound = HOST
    elif launching > allowed:
        bound = LAUNCH
    else:
        bound = COMPUTE if allowed > work.bytes / roofline.bytes_per_s else MEMORY
    # Nothing to compute is no share of anything.
    return Judgement(allowed / own_s if work.operations else None, bound)
