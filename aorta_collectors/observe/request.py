"""What an observer is asked for, as one value. Imports no torch, so that a configuration can be made of it."""

from __future__ import annotations

from dataclasses import dataclass

from aorta_collectors.observe.followed.entry import FollowEntry
from aorta_collectors.observe.limits import Bound
from aorta_collectors.observe.watch import WatchGroup


@dataclass(frozen=True)
class Request:
    """What to look at, and how closely.

    Attributes:
        groups: Modules to watch, and which of their tensors.
        follows: Tensors of the batch to read again and again.
        bounds: Allowed ranges by layer name.
        threshold: |x| above it counts as huge.
        headroom: Bits below the largest number of a tensor's dtype from which its elements count as huge too.
        max_param_numel: Parameters with more elements are not scanned, and listed as skipped.
        origin: Look at all that is needed to say where a bad value came into being.
        addresses: Tell where each tensor and its storage lie.
        locate: Find the rows that hold bad elements, and the first one.
        moments: Sum up the finite elements and their squares.
        keep_bad: Keep a copy of the first bad tensor.
        follow_most: Most tensors that are followed.
        sparse, sparse_heavy: Add metadata of jagged tensors; the heavy kind waits for the device.
    """

    groups: tuple[WatchGroup, ...] = ()
    follows: tuple[FollowEntry, ...] = ()
    bounds: tuple[Bound, ...] = ()
    threshold: float = 1e10
    headroom: float | None = None
    max_param_numel: int = 50_000_000
    origin: bool = False
    addresses: bool = False
    locate: bool = False
    moments: bool = False
    keep_bad: bool = False
    follow_most: int = 64
    sparse: bool = False
    sparse_heavy: bool = False
