"""Which kernel reads a tensor, and with what: the meeting point of formats, layouts, rows and scratch areas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from aorta_collectors.observe.device.arena import WORDS
from aorta_collectors.observe.device.formats import Format, has_format
from aorta_collectors.observe.device.layout import collapsed, span
from aorta_collectors.observe.device.scratch import PROGRAMS
from aorta_collectors.observe.limits import Limits

_MOST_DIMS = 4
_MOST_LIMITS = 4096  # kept as keys; there is one for each dtype and range of the request
_SMALL = 16  # tiles of a tensor that shares a launch: one program reads them all


class Plan(NamedTuple):
    """How one tensor is read.

    Attributes:
        numbers: address to range_high, as the kernel has them.
        dims: Sizes 1 to 3 and strides 0 to 3, as the kernel has them.
        tiles: Into which it falls.
        constants: What the kernel is compiled for: bits, kind, locate, number of dims, wide, aligned, block, digits.
        held: What must stay until the kernel is queued.
    """

    numbers: tuple[int, ...]
    dims: tuple[int, ...]
    tiles: int
    constants: tuple[int, int, int, int, bool, bool, int, int]
    held: Tensor

    @property
    def is_small(self) -> bool:
        return self.tiles <= _SMALL and self.constants[3] == 0

    @property
    def constants_of_table(self) -> tuple[int, int, int, bool, int, int]:
        bits, kind, locate, _, _, aligned, block, digits = self.constants
        return bits, kind, locate, aligned, block, digits


class Kernels:
    """The kernels of one device, and which of them are ready to run.

    Args:
        tile: Elements that a program reads at a time, 0 for what suits a GPU.
        programs: Most programs that share a tensor.

    Attributes:
        interpreted: Whether Triton interprets kernels in this process, which works for host memory alone.

    Raises:
        ImportError: Triton isn't there.
    """

    def __init__(self, *, tile: int = 0, programs: int = PROGRAMS) -> None:
        from aorta_collectors.observe.device import kernel  # compiled code and Triton: only where it is used

        self._one: Any = kernel.reduce_one
        self._table: Any = kernel.reduce_table
        self.interpreted = type(kernel.reduce_one).__name__ == "InterpretedFunction"
        self._tile = tile
        self._programs = programs
        # Wavefronts of AMD have 64 threads, warps 32.
        self._options = {"num_warps": 4 if torch.version.hip else 8, "enable_fp_fusion": False}
        self._formats: dict[torch.dtype, Format] = {}
        self._keys: dict[tuple[torch.dtype, Limits], tuple[int, ...]] = {}
        self._loaded: set[tuple[Any, ...]] = set()

    def format(self, dtype: torch.dtype) -> Format | None:
        """How values of `dtype` are read, None if they can't be."""
        if dtype not in self._formats:
            if not has_format(dtype):
                return None
            self._formats[dtype] = Format(dtype)
        return self._formats[dtype]

    def plan(self, values: Tensor, limits: Limits, locate: bool, moments: bool = False) -> Plan:
        """How to read a tensor whose dtype has a format, and which is not empty."""
        format_ = self._formats[values.dtype]
        dims = collapsed(values, in_order=locate)
        if len(dims) > _MOST_DIMS:
            values = values.contiguous()
            dims = []
        key = (values.dtype, limits)
        keys = self._keys.get(key)
        if keys is None:
            if len(self._keys) >= _MOST_LIMITS:
                self._keys.clear()
            keys = self._keys[key] = tuple(format_.keys(limits))
        numel = values.numel()
        width = numel // values.shape[0] if values.dim() > 1 else 1
        address = values.data_ptr()
        wide = span(dims) + numel >= 2**31 if dims else False
        block = self._block(format_.bits)
        constants = (
            format_.bits,
            format_.kind,
            0 if not locate else 1 if width == 1 else 2,
            len(dims),
            wide,
            not dims and address % 16 == 0,  # where elements are taken one by one it makes no difference
            block,
            format_.digits if moments else -1,
        )
        return Plan((address, numel, width, *keys), _padded(dims), -(-numel // block), constants, values)

    def is_loaded(self, plan: Plan) -> bool:
        """Whether the kernel for it has run on this device, so that running it again loads nothing."""
        return plan.constants in self._loaded

    def reduce(self, plan: Plan, row: int, scratch: Callable[[], int]) -> None:
        """Queue the reduction of one tensor into the row at address `row`.

        Args:
            scratch: Gives the address of an area, asked only where several programs share the tensor.
        """
        each = -(-plan.tiles // self._programs)
        programs = -(-plan.tiles // each)
        area = scratch() if programs > 1 else 0
        numbers = (row, area, *plan.numbers, *plan.dims)
        self._one[(programs,)](*numbers, *plan.constants, self._programs, **self._options)
        self._loaded.add(plan.constants)

    def reduce_many(self, constants: tuple[int, int, int, bool, int, int], count: int, row: int, table: int) -> None:
        """Queue the reduction of small tensors, in one launch, into the rows from address `row` on.

        Args:
            constants: Of each of their plans.
            table: Address of `count` entries; see `table_of`.
        """
        self._table[(count,)](row, table, *constants, **self._options)

    def _block(self, bits: int) -> int:
        # At 16 elements a thread all that a tile needs fits into registers.
        return self._tile or {8: 4096, 16: 4096, 32: 4096, 64: 2048}[bits]


def table_of(plans: Sequence[Plan]) -> tuple[int, ...]:
    """The numbers of a table for `reduce_many`, WORDS an entry."""
    padding = (0,) * (WORDS - len(plans[0].numbers))
    return tuple(number for plan in plans for number in (*plan.numbers, *padding))


def _padded(dims: list[tuple[int, int]]) -> tuple[int, ...]:
    """(size1, size2, size3, stride0, stride1, stride2, stride3), 1 being the innermost dimension of several."""
    if len(dims) < 2:
        return (1, 1, 1, dims[0][1] if dims else 1, 0, 0, 0)
    inner = dims[:0:-1] + [(1, 0)] * (_MOST_DIMS - len(dims))
    return (*(size for size, _ in inner), dims[0][1], *(stride for _, stride in inner))
