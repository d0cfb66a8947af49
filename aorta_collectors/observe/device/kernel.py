"""The Triton kernels: one pass over a tensor, as keys (see formats), into one row (see arena). Imported only when used.

A program reads a run of consecutive tiles. Of a tile without a bad element, the usual one, only its lowest and highest
key are taken, and sums where they are wanted; all else is counted while the tile is still in registers, so nothing is
read twice. Counts are integers, ends are exact, and sums are joined in the order of the tiles, so that a result doesn't
depend on the order in which programs run.

Where several programs share a tensor, each leaves its part in a scratch area, and the last one to arrive joins the
parts, in their order, and leaves the area as it found it. Kernels that share one must run one after the other.
"""
# mypy: ignore-errors
# ruff: noqa: SIM905 -- a list of names reads better as words

import triton
import triton.language as tl

from aorta_collectors.observe.device import arena
from aorta_collectors.observe.device.scratch import HEADER, PARTS
from aorta_collectors.observe.device.tiles import count, larger, run

# Numbers stand in the kernels as they are, since Triton compares each global name with its value at every launch: that
# would double what a launch costs the host. A part of a tensor has two more than a row: the first and the last bad row
# in it, counted along dim 0, -1 for none.
assert (arena.LOW, arena.HIGH, arena.BAD, arena.NAN, arena.INF, arena.POSINF) == (0, 1, 2, 3, 4, 5)
assert (arena.HUGE, arena.OUT_OF_RANGE, arena.FIRST, arena.FIRST_KEY, arena.BAD_ROWS) == (6, 7, 8, 9, 10)
assert (arena.TOTAL, arena.SQUARES, PARTS, HEADER, arena.WORDS) == (11, 12, 15, 16, 16)

_NUMBERS = (
    "row scratch address numel width clean_low clean_high finite_low finite_high negative_infinity positive_infinity "
    "huge_low huge_high range_low range_high size1 size2 size3 stride0 stride1 stride2 stride3"
).split()


@triton.jit
def _write(
    target, STEP: tl.constexpr, DIGITS: tl.constexpr,
    low, high, bads, nans, infs, posinfs, huges, outs, first, first_key, rows, total, squares,
):  # fmt: skip
    """The numbers of a row, STEP apart."""
    tl.store(target + 0 * STEP, low.to(tl.int64))
    tl.store(target + 1 * STEP, high.to(tl.int64))
    tl.store(target + 2 * STEP, bads)
    tl.store(target + 3 * STEP, nans)
    tl.store(target + 4 * STEP, infs)
    tl.store(target + 5 * STEP, posinfs)
    tl.store(target + 6 * STEP, huges)
    tl.store(target + 7 * STEP, outs)
    tl.store(target + 8 * STEP, first)
    tl.store(target + 9 * STEP, first_key)
    tl.store(target + 10 * STEP, rows)
    if DIGITS >= 0:
        tl.store(target + 11 * STEP, total.to(tl.int64, bitcast=True))
        tl.store(target + 12 * STEP, squares.to(tl.int64, bitcast=True))


@triton.jit
def _parts(parts, WORD: tl.constexpr, STEP: tl.constexpr, lane, used, other):
    # Past the first cache, which may hold what another program has replaced since.
    return tl.load(parts + WORD * STEP + lane, mask=used, other=other, cache_modifier=".cg")


@triton.jit
def _join(parts, row, programs, LOCATE: tl.constexpr, DIGITS: tl.constexpr, PROGRAMS: tl.constexpr):
    """One row of all the parts."""
    lane = tl.arange(0, PROGRAMS)
    used = lane < programs
    bads = tl.sum(_parts(parts, 2, PROGRAMS, lane, used, 0), 0)
    tl.store(row + 0, tl.min(_parts(parts, 0, PROGRAMS, lane, used, (1 << 63) - 1), 0))
    tl.store(row + 1, tl.max(_parts(parts, 1, PROGRAMS, lane, used, -(1 << 63)), 0))
    tl.store(row + 2, bads)
    if DIGITS >= 0:
        total = _parts(parts, 11, PROGRAMS, lane, used, 0).to(tl.float64, bitcast=True)
        squares = _parts(parts, 12, PROGRAMS, lane, used, 0).to(tl.float64, bitcast=True)
        tl.store(row + 11, tl.sum(total, 0).to(tl.int64, bitcast=True))
        tl.store(row + 12, tl.sum(squares, 0).to(tl.int64, bitcast=True))
    if bads > 0:
        tl.store(row + 3, tl.sum(_parts(parts, 3, PROGRAMS, lane, used, 0), 0))
        tl.store(row + 4, tl.sum(_parts(parts, 4, PROGRAMS, lane, used, 0), 0))
        tl.store(row + 5, tl.sum(_parts(parts, 5, PROGRAMS, lane, used, 0), 0))
        tl.store(row + 6, tl.sum(_parts(parts, 6, PROGRAMS, lane, used, 0), 0))
        tl.store(row + 7, tl.sum(_parts(parts, 7, PROGRAMS, lane, used, 0), 0))
        if LOCATE > 0:
            firsts = _parts(parts, 8, PROGRAMS, lane, used, -1)
            first = tl.min(tl.where(firsts < 0, (1 << 63) - 1, firsts), 0)
            keys = _parts(parts, 9, PROGRAMS, lane, used, 0)
            tl.store(row + 8, first)
            tl.store(row + 9, tl.sum(tl.where(firsts == first, keys, 0), 0))
        if LOCATE > 1:
            # A row that goes on from an earlier part has been counted there.
            begins = _parts(parts, 13, PROGRAMS, lane, used, -1)
            before = _parts(parts, 14, PROGRAMS, lane - 1, used & (lane > 0), -1)
            again = (begins >= 0) & (begins == tl.associative_scan(before, 0, larger))
            tl.store(row + 10, tl.sum(_parts(parts, 10, PROGRAMS, lane, used, 0), 0) - count(again))


@triton.jit(do_not_specialize=_NUMBERS)
def reduce_one(
    row: tl.int64, scratch: tl.int64, address: tl.int64, numel: tl.int64, width: tl.int64,
    clean_low: tl.int64, clean_high: tl.int64, finite_low: tl.int64, finite_high: tl.int64,
    negative_infinity: tl.int64, positive_infinity: tl.int64,
    huge_low: tl.int64, huge_high: tl.int64, range_low: tl.int64, range_high: tl.int64,
    size1: tl.int64, size2: tl.int64, size3: tl.int64,
    stride0: tl.int64, stride1: tl.int64, stride2: tl.int64, stride3: tl.int64,
    BITS: tl.constexpr, KIND: tl.constexpr, LOCATE: tl.constexpr, DIMS: tl.constexpr, WIDE: tl.constexpr,
    ALIGNED: tl.constexpr, BLOCK: tl.constexpr, DIGITS: tl.constexpr, PROGRAMS: tl.constexpr,
):  # fmt: skip
    """One tensor, by up to PROGRAMS programs.

    `row`, `scratch` and `address` are addresses. `width` is the number of elements in one index of dim 0. `size1` is
    the size of the innermost dimension and `stride1` its stride, 2 and 3 those further out; `stride0` is that of the
    outermost one. LOCATE: 0 nothing, 1 the first bad element, 2 the number of bad rows as well.
    DIGITS: -1 for no sums; else see tile_sums.
    """
    program = tl.program_id(0)
    programs = tl.num_programs(0)
    tiles = ((numel.to(tl.int64) + BLOCK - 1) // BLOCK).to(tl.int32)
    each = (tiles + programs - 1) // programs
    begin = program * each
    (
        low, high, bads, nans, infs, posinfs, huges, outs, first, first_key, rows, first_row, last_row,
        total, squares,
    ) = run(
        address.to(tl.int64), begin, tl.minimum(begin + each, tiles), numel.to(tl.int64), width.to(tl.int64),
        clean_low, clean_high, finite_low, finite_high, negative_infinity, positive_infinity,
        huge_low, huge_high, range_low, range_high, size1, size2, size3, stride0, stride1, stride2, stride3,
        BITS, KIND, LOCATE, DIMS, WIDE, ALIGNED, BLOCK, DIGITS,
    )  # fmt: skip
    target = row.to(tl.int64).to(tl.pointer_type(tl.int64))
    if programs == 1:
        _write(
            target, 1, DIGITS, low, high, bads, nans, infs, posinfs, huges, outs, first, first_key, rows, total, squares
        )
    else:
        parts = (scratch.to(tl.int64) + 16 * 8).to(tl.pointer_type(tl.int64))
        mine = parts + program
        _write(
            mine, PROGRAMS, DIGITS,
            low, high, bads, nans, infs, posinfs, huges, outs, first, first_key, rows, total, squares,
        )  # fmt: skip
        tl.store(mine + 13 * PROGRAMS, first_row)
        tl.store(mine + 14 * PROGRAMS, last_row)
        # All of this program's part is written before it counts itself in, and whoever counts the last one reads
        # all parts afterwards: the atomic releases what stands before it and acquires for what comes after.
        tl.debug_barrier()
        arrivals = scratch.to(tl.int64).to(tl.pointer_type(tl.int32))
        arrived = tl.atomic_add(arrivals, 1, sem="acq_rel", scope="gpu")
        tl.debug_barrier()
        if arrived == programs - 1:
            _join(parts, target, programs, LOCATE, DIGITS, PROGRAMS)
            tl.store(arrivals, 0)


@triton.jit(do_not_specialize=["row", "table"])
def reduce_table(
    row: tl.int64, table: tl.int64, BITS: tl.constexpr, KIND: tl.constexpr, LOCATE: tl.constexpr,
    ALIGNED: tl.constexpr, BLOCK: tl.constexpr, DIGITS: tl.constexpr,
):  # fmt: skip
    """Small tensors without gaps, one a program, into rows that lie one after the other.

    An entry of `table` is WORDS numbers: what `reduce_one` calls address to range_high, in that order.
    """
    program = tl.program_id(0)
    entry = table.to(tl.int64).to(tl.pointer_type(tl.int64)) + program * 16
    numel = tl.load(entry + 1)
    (
        low, high, bads, nans, infs, posinfs, huges, outs, first, first_key, rows, _first_row, _last_row,
        total, squares,
    ) = run(
        tl.load(entry), program * 0, ((numel + BLOCK - 1) // BLOCK).to(tl.int32), numel, tl.load(entry + 2),
        tl.load(entry + 3), tl.load(entry + 4), tl.load(entry + 5), tl.load(entry + 6), tl.load(entry + 7),
        tl.load(entry + 8), tl.load(entry + 9), tl.load(entry + 10), tl.load(entry + 11), tl.load(entry + 12),
        0, 0, 0, 0, 0, 0, 0, BITS, KIND, LOCATE, 0, False, ALIGNED, BLOCK, DIGITS,
    )  # fmt: skip
    target = (row.to(tl.int64) + program.to(tl.int64) * (16 * 8)).to(tl.pointer_type(tl.int64))
    _write(target, 1, DIGITS, low, high, bads, nans, infs, posinfs, huges, outs, first, first_key, rows, total, squares)
