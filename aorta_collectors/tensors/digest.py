"""A digest of a tensor's bits: the SHA-256 of its elements' bytes, row by row without gaps, whatever lies in memory.

Two tensors with the same dtype and shape have the same digest exactly where all their bits are equal: -0.0 is not 0.0
then, and a NaN equals one with the same payload.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Iterator

import torch
from torch import Tensor

from aorta_collectors.observe.host_copies import bits_of

# Bytes that are made contiguous at a time; fewer than a large cache holds.
_AT_ONCE = 4 << 20


def digest_of(elements: Tensor) -> str:
    """Such as sha256:e3b0...

    Args:
        elements: In host memory, strided, detached, of class Tensor, of any dtype.
    """
    found = hashlib.sha256()
    for piece in _in_row_order(bits_of(elements)):
        size = piece.numel() * piece.element_size()
        # No copy, and no need of numpy, which has no bfloat16 anyway. hashlib lets other threads run meanwhile.
        found.update((ctypes.c_ubyte * size).from_address(piece.data_ptr()))
    return f"sha256:{found.hexdigest()}"


def _in_row_order(elements: Tensor) -> Iterator[Tensor]:
    """The elements in contiguous pieces; what has no gaps is one piece, and is not copied."""
    if not elements.numel():
        return
    if elements.is_contiguous():
        yield elements
    elif elements.numel() * elements.element_size() <= _AT_ONCE or not elements.dim():
        yield elements.contiguous()
    elif len(elements) == 1:
        yield from _in_row_order(elements[0])
    else:
        row = elements[0].numel() * elements.element_size()
        for part in torch.split(elements, max(1, _AT_ONCE // row)):
            if len(part) == 1:
                yield from _in_row_order(part[0])
            else:
                yield part.contiguous()
