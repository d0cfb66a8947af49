"""Reads tensors of one device into rows: with a kernel where that can be, else with torch, to the same results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from aorta_collectors.observe.device.arena import Arena, Row
from aorta_collectors.observe.device.entries import Entry, entry_of
from aorta_collectors.observe.device.formats import Format
from aorta_collectors.observe.device.launch import Kernels, Plan
from aorta_collectors.observe.device.scratch import Scratch
from aorta_collectors.observe.device.streams import Device
from aorta_collectors.observe.device.tables import Tables
from aorta_collectors.observe.limits import Limits
from aorta_collectors.observe.reduce import reduce_later


class Small(NamedTuple):
    """A tensor that can share a launch with others."""

    plan: Plan
    format: Format


class DeviceReader:
    """One device, with the memory that reading its tensors takes.

    Args:
        kernels: None where there are none: torch reads everything.
        log: Gets one line the first time that a kernel fails for a dtype; from then on torch reads that dtype.
    """

    def __init__(self, device: Device, kernels: Kernels | None, log: Callable[[str], None]) -> None:
        self.device = device
        self.arena = Arena(device)
        self.scratch = Scratch(device)
        self._kernels = kernels
        self._log = log
        self._tables = Tables(device)
        self._failed: set[torch.dtype] = set()

    def read(
        self, row: Row, values: Tensor, limits: Limits, locate: bool, moments: bool, scratch: Scratch, capturing: bool
    ) -> Entry:
        """The entry of `row`, the reduction into it being queued on the current stream.

        Args:
            capturing: A graph is being captured somewhere: a kernel that is loaded only now could make that fail.
        """
        dtype = values.dtype
        if self._kernels is not None and dtype not in self._failed:
            try:
                format_ = self._kernels.format(dtype)
                if format_ is not None:
                    plan = self._kernels.plan(values, limits, locate, moments)
                    if not capturing or self._kernels.is_loaded(plan):
                        self._kernels.reduce(plan, row.address, scratch.address)
                        return entry_of(row, values, locate, moments, format_)
            except Exception as error:
                self._give_up(dtype, error)
        numbers = reduce_later(values, limits, locate, moments)
        row.write(numbers)
        return entry_of(row, values, locate, moments, None, len(numbers))

    def small(self, values: Tensor, limits: Limits, locate: bool, moments: bool) -> Small | None:
        """How to read a tensor together with others; None for one that is read alone."""
        if self._kernels is None or values.dtype in self._failed:
            return None
        try:
            format_ = self._kernels.format(values.dtype)
            plan = self._kernels.plan(values, limits, locate, moments) if format_ is not None else None
        except Exception as error:
            self._give_up(values.dtype, error)
            return None
        return Small(plan, format_) if plan is not None and format_ is not None and plan.is_small else None

    def read_together(self, group: Sequence[Small]) -> list[Row] | None:
        """The rows of tensors whose plans have the same constants, read in one launch; None if that cannot be."""
        kernels = self._kernels
        assert kernels is not None
        try:
            plans = [small.plan for small in group]
            table = self._tables.address(plans)
            rows = self.arena.take(len(group))
            kernels.reduce_many(plans[0].constants_of_table, len(group), rows[0].address, table)
        except Exception as error:
            self._give_up(group[0].format.dtype, error)
            return None
        return rows

    def _give_up(self, dtype: torch.dtype, error: Exception) -> None:
        if isinstance(error, torch.OutOfMemoryError):
            return  # the next one may find room
        self._failed.add(dtype)
        self._log(f"tensors of {dtype} are read with torch, since the kernel failed: {type(error).__name__}: {error}")
