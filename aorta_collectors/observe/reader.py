"""From a tensor to an observation: reduced where it lies, kept until the step is drained.

On the host a clean tensor costs one pass. On an accelerator nothing is waited for: the rows of a step come over
together, when the step is drained.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from aorta_collectors.observe.followed.side_stream import SideStream
from aorta_collectors.observe.limits import Limits
from aorta_collectors.observe.observation import Moment, Observation, Site
from aorta_collectors.observe.precision import huge_limit
from aorta_collectors.observe.readable import plain_values
from aorta_collectors.observe.reduce import Stats, read_rows, reduce_later, reduce_now

_NAMES = 20  # of layers whose tensors were passed over, for each reason


class Reader:
    """Reads tensors of a step.

    Args:
        threshold: |x| above it counts as huge.
        headroom: Bits below the largest number of a tensor's dtype from which its elements count as huge too.
        addresses: Add where a tensor and its storage lie.
        locate: Find the rows that hold bad elements, and the first one.
        keep: Keep a copy of the first bad tensor. On an accelerator that takes a copy of each tensor of a step.

    Attributes:
        calls: Activations and input gradients seen so far, one a call, as the stock logger counts them.
        observed: Role -> tensors reduced so far of which records were asked for.
        skipped: Reason -> number of tensors passed over for it, and the first layers where that was.
    """

    def __init__(
        self,
        threshold: float,
        *,
        headroom: float | None = None,
        addresses: bool = False,
        locate: bool = False,
        keep: bool = False,
    ) -> None:
        self._threshold = threshold
        self._headroom = headroom
        self._addresses = addresses
        self._locate = locate
        self._keep = keep
        self._everywhere = Limits(threshold)
        self._limits: dict[tuple[Any, torch.dtype], Limits] = {}
        self._pending: list[Observation] = []
        self._kept: dict[int, Tensor] = {}
        self._sides: dict[int, SideStream] = {}
        self.calls = 0
        self.observed: dict[str, int] = {}
        self.skipped: dict[str, tuple[int, list[str]]] = {}

    def __len__(self) -> int:
        """Tensors read since the last drain."""
        return len(self._pending)

    @property
    def num_skipped(self) -> int:
        return sum(count for count, _ in self.skipped.values())

    def observe(
        self,
        site: Site,
        tensor: Tensor,
        moment: Moment,
        extra: Mapping[str, Any] | None = None,
        side: SideStream | None = None,
    ) -> int | None:
        """Look at `tensor` now; returns the index of the observation within the step, None for a tensor passed over."""
        plain, reason = plain_values(tensor)
        if plain is None:
            if site.recorded:
                self.pass_over(site.layer, reason)
            return None
        if site.is_flow:
            self.calls += 1
        if site.bounds is None and self._headroom is None:
            limits = self._everywhere
        else:
            limits = self._limits_of(site, tensor.dtype)
        if self._addresses:
            extra = {**(extra or {}), **_addresses(plain)}
        index = len(self._pending)
        if side is None:
            low, high, reduced = self._reduce(site, tensor, plain, limits, index)
        else:
            # The copy of a bad tensor belongs there as well: elsewhere it could be made before the data is there.
            with side.reading(plain):
                low, high, reduced = self._reduce(site, tensor, plain, limits, index)
        if side is not None:
            self._sides[id(side)] = side
        self._pending.append(
            Observation(
                site,
                plain.shape if tensor.is_nested else tensor.shape,
                tensor.dtype,
                self.calls,
                time.monotonic(),
                plain.numel(),
                low,
                high,
                reduced,
                moment,
                extra,
            )
        )
        return index

    def _reduce(
        self, site: Site, tensor: Tensor, plain: Tensor, limits: Limits, index: int
    ) -> tuple[float, float, Stats | Tensor | None]:
        if plain.device.type == "cpu":
            low, high, stats = reduce_now(plain, limits, self._locate)
            if self._keep and stats is not None and site.recorded and stats.bad:
                self._kept[index] = tensor.detach().clone()
                self._keep = False
            return low, high, stats
        if self._keep and site.recorded:
            self._kept[index] = tensor.detach().clone()
        return 0.0, 0.0, reduce_later(plain, limits, self._locate)

    def may_be_masked(self, index: int) -> bool:
        """Whether what was read has -Inf and nothing worse, or lies on a device and is not known yet."""
        reduced = self._pending[index].reduced
        return reduced is not None and (isinstance(reduced, Tensor) or reduced.only_negative_infinite)

    def drain(self) -> tuple[list[Observation], dict[int, Tensor]]:
        """All that was read since the last drain, with readable stats, and the copies kept of bad tensors, by index."""
        pending, self._pending = self._pending, []
        kept, self._kept = self._kept, {}
        for seen in pending:
            if seen.site.recorded:
                role = seen.site.role
                self.observed[role] = self.observed.get(role, 0) + 1
        rows = [(index, seen) for index, seen in enumerate(pending) if isinstance(seen.reduced, Tensor)]
        if rows:
            for side in self._sides.values():
                side.join()
            self._sides.clear()
            stats = read_rows([(seen.numel, seen.reduced) for _, seen in rows])  # type: ignore[misc]
            for (index, seen), entry in zip(rows, stats, strict=True):
                pending[index] = seen._replace(reduced=entry)
        kept = {index: tensor for index, tensor in kept.items() if pending[index].is_bad}
        if kept:
            self._keep = False
        return pending, kept

    def _limits_of(self, site: Site, dtype: torch.dtype) -> Limits:
        key = (site.bounds, dtype)
        limits = self._limits.get(key)
        if limits is None:
            huge = huge_limit(dtype, self._threshold, self._headroom)
            limits = self._limits[key] = Limits(huge, *(site.bounds or ()))
        return limits

    def pass_over(self, layer: str, reason: str) -> None:
        """Count a tensor that is not read."""
        count, layers = self.skipped.get(reason, (0, []))
        if len(layers) < _NAMES and layer not in layers:
            layers.append(layer)
        self.skipped[reason] = (count + 1, layers)


def _addresses(tensor: Tensor) -> dict[str, Any]:
    """Metadata alone, nothing is waited for. Records whose [storage_ptr, + storage_nbytes) overlap share memory."""
    storage = tensor.untyped_storage()
    return {
        "data_ptr": hex(tensor.data_ptr()),
        "storage_ptr": hex(storage.data_ptr()),
        "storage_offset_bytes": tensor.storage_offset() * tensor.element_size(),
        "storage_nbytes": storage.nbytes(),
    }
