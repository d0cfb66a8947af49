"""What is in a run of tiles of a tensor, as a program of the kernels finds it (see kernel). Triton, not Python."""
# mypy: ignore-errors
# ruff: noqa: SIM108 -- the language has statements only

import triton
import triton.language as tl

from aorta_collectors.observe.device import formats
from aorta_collectors.observe.device.tile_sums import tile_sums

# As numbers in the kernels; see kernel.
assert (formats.UNSIGNED, formats.FLOAT, formats.FNUZ) == (1, 2, 3)


@triton.jit
def larger(a, b):
    return tl.maximum(a, b)


@triton.jit
def _key(bits, BITS: tl.constexpr, KIND: tl.constexpr):
    """Bit patterns as integers in the order of their values; int32 for up to 32 bits, else int64.

    KIND: 0 signed integers, 1 unsigned ones, 2 floating point, 3 the same with NaN in the place of -0.0.
    """
    if BITS < 64:
        word = bits.to(tl.int32)
    else:
        word = bits
    key = word
    if KIND == 1:
        if BITS < 32:
            key = word & ((1 << BITS) - 1)
        else:
            key = word ^ (-1 << (BITS - 1))
    elif KIND >= 2:
        sign = word >> (31 if BITS < 64 else 63)
        key = word ^ (sign & ((1 << (BITS - 1)) - 1))
        if KIND == 3:
            key = tl.where(word == -128, 128, key)
    return key


@triton.jit
def _element(
    pointer,
    start,
    lane,
    DIMS: tl.constexpr,
    WIDE: tl.constexpr,
    size1,
    size2,
    size3,
    stride0,
    stride1,
    stride2,
    stride3,
):
    """Pointers to the elements start + lane in row-major order."""
    if DIMS == 0:
        result = pointer + start + lane
    else:
        index = start + lane.to(tl.int64)
        if not WIDE:
            index = index.to(tl.int32)
            size1 = size1.to(tl.int32)
            size2 = size2.to(tl.int32)
            size3 = size3.to(tl.int32)
            stride0 = stride0.to(tl.int32)
            stride1 = stride1.to(tl.int32)
            stride2 = stride2.to(tl.int32)
            stride3 = stride3.to(tl.int32)
        offset = index * 0
        if DIMS > 1:
            offset += (index % size1) * stride1
            index = index // size1
        if DIMS > 2:
            offset += (index % size2) * stride2
            index = index // size2
        if DIMS > 3:
            offset += (index % size3) * stride3
            index = index // size3
        result = pointer + (offset + index * stride0)
    return result


@triton.jit
def count(condition):
    return tl.sum(condition.to(tl.int32), 0).to(tl.int64)


@triton.jit
def _joined(
    key, inside, start, lane, width, clean_low, clean_high, finite_low, finite_high, negative_infinity,
    positive_infinity, huge_low, huge_high, range_low, range_high,
    low, high, bads, nans, infs, posinfs, huges, outs, first, first_key, rows, first_row, last_row, total, squares,
    BITS: tl.constexpr, KIND: tl.constexpr, LOCATE: tl.constexpr, BLOCK: tl.constexpr, DIGITS: tl.constexpr,
    LEAST: tl.constexpr, MOST: tl.constexpr,
):  # fmt: skip
    """What was found so far, from `low` on, with one more tile. `inside` tells its elements from what is beyond."""
    tile_low = tl.min(tl.where(inside, key, MOST), 0)
    tile_high = tl.max(tl.where(inside, key, LEAST), 0)
    if (tile_low < clean_low) | (tile_high > clean_high):
        finite = inside & (key >= finite_low) & (key <= finite_high)
        strange = inside & (finite == 0)
        infinite = strange & ((key == negative_infinity) | (key == positive_infinity))
        huge = finite & ((key < huge_low) | (key > huge_high))
        out = finite & ((key < range_low) | (key > range_high))
        bad = strange | huge | out
        tile_low = tl.min(tl.where(finite, key, MOST), 0)
        tile_high = tl.max(tl.where(finite, key, LEAST), 0)
        nans += count(strange & (infinite == 0))
        infs += count(infinite)
        posinfs += count(infinite & (key == positive_infinity))
        huges += count(huge)
        outs += count(out)
        found = count(bad)
        bads += found
        if LOCATE > 0:
            position = tl.min(tl.where(bad, lane, BLOCK), 0)
            here = tl.sum(tl.where(lane == position, key, 0), 0).to(tl.int64)
            first_key = tl.where(first < 0, here, first_key)
            first = tl.where(first < 0, start + position, first)
            if LOCATE > 1:
                base = start // width
                row = ((start - base * width + lane) // width).to(tl.int32)
                # Larger in later rows, and in a row larger the earlier it stands: the largest so far is an element's
                # own number only where it is the first bad one of its row.
                order = tl.where(bad, row * BLOCK + (BLOCK - 1 - lane), -1)
                begins = bad & (tl.associative_scan(order, 0, larger) == order)
                tile_first = base + tl.min(tl.where(bad, row, BLOCK), 0)
                rows += count(begins) - (tile_first == last_row).to(tl.int64)
                first_row = tl.where(first_row < 0, tile_first, first_row)
                last_row = base + tl.max(tl.where(bad, row, -1), 0)
    if DIGITS >= 0:
        finite = inside & (key >= finite_low) & (key <= finite_high)
        tile_total, tile_squares = tile_sums(key, finite, tile_low, tile_high, BITS, KIND, DIGITS, LEAST)
        total += tile_total
        squares += tile_squares
    low = tl.minimum(low, tile_low)
    high = tl.maximum(high, tile_high)
    return (
        low, high, bads, nans, infs, posinfs, huges, outs, first, first_key, rows, first_row, last_row,
        total, squares,
    )  # fmt: skip


@triton.jit
def run(
    address, begin, end, numel, width, clean_low, clean_high, finite_low, finite_high, negative_infinity,
    positive_infinity, huge_low, huge_high, range_low, range_high,
    size1, size2, size3, stride0, stride1, stride2, stride3,
    BITS: tl.constexpr, KIND: tl.constexpr, LOCATE: tl.constexpr, DIMS: tl.constexpr, WIDE: tl.constexpr,
    ALIGNED: tl.constexpr, BLOCK: tl.constexpr, DIGITS: tl.constexpr,
):  # fmt: skip
    """What is in the tiles [begin, end), of BLOCK elements each: the numbers of a part, in their order."""
    if BITS == 8:
        ELEMENT: tl.constexpr = tl.int8
    elif BITS == 16:
        ELEMENT: tl.constexpr = tl.int16
    elif BITS == 32:
        ELEMENT: tl.constexpr = tl.int32
    else:
        ELEMENT: tl.constexpr = tl.int64
    if BITS == 64:
        KEY: tl.constexpr = tl.int64
        MOST: tl.constexpr = (1 << 63) - 1
        LEAST: tl.constexpr = -(1 << 63)
    else:
        KEY: tl.constexpr = tl.int32
        MOST: tl.constexpr = (1 << 31) - 1
        LEAST: tl.constexpr = -(1 << 31)
    pointer = address.to(tl.pointer_type(ELEMENT))
    if ALIGNED:
        pointer = tl.multiple_of(pointer, 16)
    clean_low = clean_low.to(KEY)
    clean_high = clean_high.to(KEY)
    finite_low = finite_low.to(KEY)
    finite_high = finite_high.to(KEY)
    negative_infinity = negative_infinity.to(KEY)
    positive_infinity = positive_infinity.to(KEY)
    huge_low = huge_low.to(KEY)
    huge_high = huge_high.to(KEY)
    range_low = range_low.to(KEY)
    range_high = range_high.to(KEY)
    low = tl.full((), MOST, KEY)
    high = tl.full((), LEAST, KEY)
    none = tl.full((), 0, tl.int64)
    bads, nans, infs, posinfs, huges, outs, first_key, rows = none, none, none, none, none, none, none, none
    first, first_row, last_row = none - 1, none - 1, none - 1
    total = tl.full((), 0.0, tl.float64)
    squares = total
    lane = tl.arange(0, BLOCK)
    every = tl.full((BLOCK,), 1, tl.int1)
    whole = (numel // BLOCK).to(tl.int32)
    stop = tl.minimum(end, whole)
    start = begin.to(tl.int64) * BLOCK
    following = tl.load(
        _element(pointer, start, lane, DIMS, WIDE, size1, size2, size3, stride0, stride1, stride2, stride3),
        mask=every & (begin < stop),
        other=0,
    )
    for tile in range(begin, stop):
        # The next tile is on its way while this one is looked at.
        bits = following
        following = tl.load(
            _element(pointer, start + BLOCK, lane, DIMS, WIDE, size1, size2, size3, stride0, stride1, stride2, stride3),
            mask=every & (tile + 1 < stop),
            other=0,
        )
        (
            low, high, bads, nans, infs, posinfs, huges, outs, first, first_key, rows, first_row, last_row,
            total, squares,
        ) = _joined(
            _key(bits, BITS, KIND), every, start, lane, width, clean_low, clean_high,
            finite_low, finite_high, negative_infinity, positive_infinity, huge_low, huge_high, range_low, range_high,
            low, high, bads, nans, infs, posinfs, huges, outs, first, first_key, rows, first_row, last_row,
            total, squares, BITS, KIND, LOCATE, BLOCK, DIGITS, LEAST, MOST,
        )  # fmt: skip
        start += BLOCK
    if end > whole:
        start = whole.to(tl.int64) * BLOCK
        inside = start + lane < numel
        bits = tl.load(
            _element(pointer, start, lane, DIMS, WIDE, size1, size2, size3, stride0, stride1, stride2, stride3),
            mask=inside,
            other=0,
        )
        (
            low, high, bads, nans, infs, posinfs, huges, outs, first, first_key, rows, first_row, last_row,
            total, squares,
        ) = _joined(
            _key(bits, BITS, KIND), inside, start, lane, width, clean_low, clean_high,
            finite_low, finite_high, negative_infinity, positive_infinity, huge_low, huge_high, range_low, range_high,
            low, high, bads, nans, infs, posinfs, huges, outs, first, first_key, rows, first_row, last_row,
            total, squares, BITS, KIND, LOCATE, BLOCK, DIGITS, LEAST, MOST,
        )  # fmt: skip
    return (
        low, high, bads, nans, infs, posinfs, huges, outs, first, first_key, rows, first_row, last_row,
        total, squares,
    )  # fmt: skip
