"""From a tensor to an observation: reduced where it lies, kept until the step is drained.

On the host a clean tensor costs one pass. On an accelerator nothing is waited for: the rows of a step come over
together, when the step is drained.
"""

from __future__ import annotations

import operator
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from aorta_collectors.observe.device.rows import DeviceRows, UnwatchedCaptureError
from aorta_collectors.observe.followed.side_stream import SideStream
from aorta_collectors.observe.in_flight import InFlight
from aorta_collectors.observe.limits import Limits
from aorta_collectors.observe.modes import in_any_mode, out_of_modes
from aorta_collectors.observe.observation import Moment, Observation, Site
from aorta_collectors.observe.precision import huge_limit
from aorta_collectors.observe.readable import is_plain, plain_values
from aorta_collectors.observe.reduce import CleanRange, Stats, reduce_now, reduce_now_with_moments

_new = tuple.__new__  # what a NamedTuple's own does in the end
_now = time.monotonic
_site_of = operator.itemgetter(0)  # of an observation
_function_modes = torch._C._len_torch_function_stack
_dispatch_modes = torch._C._len_torch_dispatch_stack
_NAMES = 20  # of layers whose tensors were passed over, for each reason


class Reader:
    """Reads tensors of a step.

    Args:
        threshold: |x| above it counts as huge.
        headroom: Bits below the largest number of a tensor's dtype from which its elements count as huge too.
        addresses: Add where a tensor and its storage lie.
        locate: Find the rows that hold bad elements, and the first one.
        moments: Sum up what is finite in each tensor of which a record may be written.
        keep: Keep a copy of the first bad tensor. On an accelerator that takes a copy of each tensor of a step.
        rows: Where tensors on devices are reduced.

    Attributes:
        ranged: Whether the finite range of clean tensors is wanted; without it they cost half as much.
        closed: Set to read nothing any more.
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
        moments: bool = False,
        keep: bool = False,
        rows: DeviceRows | None = None,
    ) -> None:
        self._rows = rows or DeviceRows()
        self._threshold = threshold
        self._headroom = headroom
        self._addresses = addresses
        self._locate = locate
        self._moments = moments
        self._keep = keep
        self._is_uniform = headroom is None and not addresses and not keep
        self._is_simple = self._is_uniform and not moments
        self._everywhere = Limits(threshold)
        self._clean = CleanRange.of(self._everywhere)
        self._limits: dict[tuple[Any, torch.dtype], tuple[Limits, CleanRange]] = {}
        self._pending: list[Observation] = []
        self._kept: dict[int, Tensor] = {}
        self._sides: dict[int, SideStream] = {}
        self.ranged = True
        self.closed = False
        self.calls = 0
        self.observed: dict[str, int] = {}
        self.skipped: dict[str, tuple[int, list[str]]] = {}

    def __len__(self) -> int:
        """Tensors read since the last drain."""
        return len(self._pending)

    @property
    def is_capturing(self) -> bool:
        """Whether a CUDA graph is being captured: nothing may be asked of a device then."""
        return self._rows.is_capturing

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
        if self.closed:
            return None  # the backward pass of a step that ended after disarming
        if _function_modes() or _dispatch_modes():
            # The program's modes are not to see what is asked of its tensor here, nor to answer it.
            return out_of_modes(self._observe, site, tensor, moment, extra, side)
        if side is not None or not self._is_simple or site.bounds is not None or not is_plain(tensor):
            return self._observe(site, tensor, moment, extra, side)
        values = tensor.detach() if tensor.requires_grad else tensor
        if not tensor.is_cpu:
            row = self._queue(site, values, self._everywhere)
            return None if row is None else self._note(site, tensor, tensor.shape, row, moment, extra)
        # What follows is all that an ordinary tensor costs beside its reduction.
        low, high, stats = reduce_now(values, self._everywhere, self._locate, self._clean, self.ranged)
        if site.is_flow:
            self.calls += 1
        pending = self._pending
        if self.ranged or stats is not None:
            shape = tensor.shape
            fields = (site, shape, tensor.dtype, self.calls, _now(), shape.numel(), low, high, stats, moment, extra)
            pending.append(_new(Observation, fields))
        else:
            pending.append(site.clean)
        return len(pending) - 1

    def _observe(
        self, site: Site, tensor: Tensor, moment: Moment, extra: Mapping[str, Any] | None, side: SideStream | None
    ) -> int | None:
        """The same for every tensor."""
        plain, reason = plain_values(tensor)
        if plain is None:
            if site.recorded:
                self.pass_over(site.layer, reason)
            return None
        limits, clean = self._limits_of(site, tensor.dtype)
        if self._addresses:
            extra = {**(extra or {}), **_addresses(plain)}
        if side is None:
            found = self._reduce(site, tensor, plain, limits, clean)
        else:
            # The copy of a bad tensor belongs there as well: elsewhere it could be made before the data is there.
            with side.reading(plain):
                found = self._reduce(site, tensor, plain, limits, clean)
            self._sides[id(side)] = side
        if found is None:
            return None
        low, high, reduced = found
        shape = plain.shape if tensor.is_nested else tensor.shape
        return self._note(site, tensor, shape, reduced, moment, extra, low, high, plain.numel())

    def observe_all(
        self, values: Iterable[tuple[Site, Tensor]], moment: Moment, failed: Callable[[Exception], None]
    ) -> None:
        """Look at many tensors at once, as parameters are: on a device, small ones are read together.

        Args:
            failed: Told of what went wrong with one of them; the others are looked at all the same.
        """
        together: list[tuple[Site, Tensor]] = []
        for site, tensor in values:
            try:
                if tensor.is_cpu or not self._is_ordinary(site, tensor):
                    self.observe(site, tensor, moment)
                else:
                    together.append((site, tensor))
            except Exception as error:
                failed(error)
        if together and not self.closed:
            try:
                items = [(tensor.detach(), self._everywhere) for _, tensor in together]
                rows = self._rows.queue_many(items, self._locate, self._moments)
            except Exception as error:
                failed(error)
                return
            for (site, tensor), row in zip(together, rows, strict=True):
                self._note(site, tensor, tensor.shape, row, moment, None)

    def _is_ordinary(self, site: Site, tensor: Tensor) -> bool:
        return self._is_uniform and site.bounds is None and not in_any_mode() and is_plain(tensor)

    def _note(
        self,
        site: Site,
        tensor: Tensor,
        shape: torch.Size,
        reduced: Stats | int | None,
        moment: Moment,
        extra: Mapping[str, Any] | None,
        low: float | None = None,
        high: float | None = None,
        numel: int | None = None,
    ) -> int:
        """Write down what was seen; returns its index."""
        if site.is_flow:
            self.calls += 1
        numel = shape.numel() if numel is None else numel
        fields = (site, shape, tensor.dtype, self.calls, _now(), numel, low, high, reduced, moment, extra)
        self._pending.append(_new(Observation, fields))
        return len(self._pending) - 1

    def _reduce(
        self, site: Site, tensor: Tensor, plain: Tensor, limits: Limits, clean: CleanRange
    ) -> tuple[float | None, float | None, Stats | int | None] | None:
        index = len(self._pending)
        if plain.is_cpu:
            reduce = reduce_now_with_moments if self._moments and site.recorded else reduce_now
            low, high, stats = reduce(plain, limits, self._locate, clean, self.ranged or site.bounds is not None)
            if self._keep and stats is not None and site.recorded and stats.bad:
                self._kept[index] = tensor.detach().clone()
                self.keep_nothing()
            return low, high, stats
        row = self._queue(site, plain, limits)
        if row is None:
            return None
        if self._keep and site.recorded and not self._rows.is_capturing:
            self._kept[index] = tensor.detach().clone()
        return None, None, row

    def _queue(self, site: Site, values: Tensor, limits: Limits) -> int | None:
        """Queue a reduction on a device; returns the number of its row, None where it cannot be read."""
        try:
            return self._rows.queue(values, limits, self._locate, self._moments and site.recorded)
        except UnwatchedCaptureError:
            if site.recorded:
                self.pass_over(site.layer, "in a graph whose capture was not seen")
            return None

    def may_be_masked(self, index: int) -> bool:
        """Whether what was read has -Inf and nothing worse, or lies on a device and is not known yet."""
        reduced = self._pending[index].reduced
        return reduced is not None and (not isinstance(reduced, Stats) or reduced.only_negative_infinite)

    def take(self) -> InFlight:
        """All that was read since this was last asked, with copies of what was, or may be, bad."""
        pending, self._pending = self._pending, []
        kept, self._kept = self._kept, {}
        self._count(pending)
        if kept:
            for side in self._sides.values():
                side.join()
        self._sides.clear()
        return InFlight(pending, kept, self._rows.seal())

    def keep_nothing(self) -> None:
        """A bad tensor has been kept: no other is wanted."""
        self._keep = False

    def exchange(self, observations: list[Observation]) -> list[Observation]:
        """Have what is read from now on added to `observations`; returns those that were added to before."""
        pending, self._pending = self._pending, observations
        return pending

    def add(self, observations: Iterable[Observation]) -> int:
        """Take in observations made elsewhere; returns the index of the first."""
        index = len(self._pending)
        self._pending += observations
        return index

    def _count(self, observations: list[Observation]) -> None:
        for site, number in Counter(map(_site_of, observations)).items():
            if site.recorded:
                self.observed[site.role] = self.observed.get(site.role, 0) + number

    def _limits_of(self, site: Site, dtype: torch.dtype) -> tuple[Limits, CleanRange]:
        if site.bounds is None and self._headroom is None:
            return self._everywhere, self._clean
        key = (site.bounds, dtype)
        found = self._limits.get(key)
        if found is None:
            limits = Limits(huge_limit(dtype, self._threshold, self._headroom), *(site.bounds or ()))
            found = self._limits[key] = (limits, CleanRange.of(limits))
        return found

    def pass_over(self, layer: str, reason: str) -> None:
        """Count a tensor that is not read."""
        count, layers = self.skipped.get(reason, (0, []))
        if len(layers) < _NAMES and layer not in layers:
            layers.append(layer)
        self.skipped[reason] = (count + 1, layers)


def _addresses(tensor: Tensor) -> dict[str, Any]:
    """Metadata alone, nothing is waited for. Records whose [storage_ptr, + storage_nbytes) overlap share memory."""
    if tensor._is_zerotensor():
        return {}  # zeros that lie nowhere
    storage = tensor.untyped_storage()
    return {
        "data_ptr": hex(tensor.data_ptr()),
        "storage_ptr": hex(storage.data_ptr()),
        "storage_offset_bytes": tensor.storage_offset() * tensor.element_size(),
        "storage_nbytes": storage.nbytes(),
    }
