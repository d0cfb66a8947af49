"""What the host knows of a row: whose result it is, and how to read it once it has arrived."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from aorta_collectors.observe.device import arena
from aorta_collectors.observe.device.arena import Block, Row
from aorta_collectors.observe.device.formats import Format
from aorta_collectors.observe.reduce import Location, Stats, decoded
from aorta_collectors.observe.sums import Sums

_NOWHERE = Location(0, None, None, None, None)


class Entry(NamedTuple):
    """One result to come.

    Attributes:
        row: Where it is put. A tensor is one of `reduce_later`, not in any arena.
        numel: Elements read.
        width: Elements in one index of dim 0; None for tensors with fewer than two dimensions.
        locate: Whether the place of bad elements was asked for.
        moments: Whether the sums were.
        format: Of the keys in the row; None where torch wrote it.
        numbers: How many numbers torch wrote.
    """

    row: Row | Tensor
    numel: int
    width: int | None
    locate: bool
    moments: bool
    format: Format | None = None
    numbers: int = 0


def entry_of(
    row: Row | Tensor, values: Tensor, locate: bool, moments: bool, format_: Format | None, numbers: int = 0
) -> Entry:
    width = values.numel() // values.shape[0] if values.dim() > 1 else None
    return Entry(row, values.numel(), width, locate, moments, format_, numbers)


class Arrived:
    """Rows in host memory, by block."""

    def __init__(self, rows: Mapping[Block, Tensor]) -> None:
        self._tensors = rows
        self._lists: dict[Block, list[list[int]]] = {}

    def stats(self, entry: Entry) -> Stats:
        """What has arrived for an entry whose row lies in one of the blocks."""
        row = entry.row
        assert isinstance(row, Row)
        if entry.format is None:
            numbers = self._tensors[row.block][row.index, : entry.numbers]
            return decoded(entry.numel, numbers.view(torch.float64).tolist())
        if row.block not in self._lists:
            self._lists[row.block] = self._tensors[row.block].tolist()
        return _stats(entry, entry.format, self._lists[row.block][row.index])


def _stats(entry: Entry, format_: Format, words: list[int]) -> Stats:
    numel = entry.numel
    bad = words[arena.BAD]
    sums = Sums(_float64(words[arena.TOTAL]), _float64(words[arena.SQUARES])) if entry.moments else None
    if not bad:
        low, high = format_.value(words[arena.LOW]), format_.value(words[arena.HIGH])
        return Stats(numel, 0, 0, 0, numel, low, high, location=_NOWHERE if entry.locate else None, moments=sums)
    nans, infs = words[arena.NAN], words[arena.INF]
    finite = numel - nans - infs
    return Stats(
        numel,
        nans,
        infs,
        words[arena.HUGE],
        finite,
        format_.value(words[arena.LOW]) if finite else None,
        format_.value(words[arena.HIGH]) if finite else None,
        words[arena.POSINF],
        words[arena.OUT_OF_RANGE],
        _location(entry, format_, words) if entry.locate else None,
        sums,
    )


def _location(entry: Entry, format_: Format, words: list[int]) -> Location:
    first = words[arena.FIRST]
    value = format_.value(words[arena.FIRST_KEY])
    if entry.width is None:
        return Location(words[arena.BAD], first, 0, first, value)
    # With one element a row, each bad one is a bad row.
    bad_rows = words[arena.BAD] if entry.width == 1 else words[arena.BAD_ROWS]
    return Location(bad_rows, first, *divmod(first, entry.width), value)


def _float64(word: int) -> float:
    number: float = struct.unpack("<d", struct.pack("<q", word))[0]
    return number
