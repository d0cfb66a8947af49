"""The sum and the sum of squares of what is finite in one tile (see tiles), of any dtype. Triton, not Python.

Elements of up to 32 bits are summed in float32, which every GPU is fast at, times a power of two that brings the
largest one of the tile near 1: no square overflows, and one that underflows is of no weight. A tile's sums are off by
less than 2e-6 of the sum of the magnitudes, or of the squares. Elements of 64 bits are summed in float64.
"""
# mypy: ignore-errors

import triton
import triton.language as tl


@triton.jit
def _magnitude(key, BITS: tl.constexpr, KIND: tl.constexpr, DIGITS: tl.constexpr):
    """The bits of float32 for keys >= 0 of a floating format; those that are not finite become anything."""
    if DIGITS == 0:
        result = tl.where(key == 0, 1 << 22, key << 23)  # float8_e8m0fnu: powers of two alone, from 2**-127 on
    elif BITS - DIGITS == 9:
        result = key << (23 - DIGITS)  # float32 itself, and bfloat16, have its exponent
    else:
        BIAS: tl.constexpr = (1 << (BITS - DIGITS - 2)) - (0 if KIND == 3 else 1)
        small = (key.to(tl.float32) * (2.0 ** (1 - BIAS - DIGITS))).to(tl.int32, bitcast=True)
        result = tl.where(key < (1 << DIGITS), small, (key << (23 - DIGITS)) + ((127 - BIAS) << 23))
    return result


@triton.jit
def tile_sums(
    key, finite, tile_low, tile_high, BITS: tl.constexpr, KIND: tl.constexpr, DIGITS: tl.constexpr, LEAST: tl.constexpr
):
    """(sum, sum of squares) in float64 of the elements where `finite`, whose keys are in [tile_low, tile_high].

    DIGITS: All bits of an integer; of a float those of its significand that are stored.
    """
    if BITS == 64:
        if DIGITS == 52:
            value = tl.where(key < 0, key ^ ((1 << 63) - 1), key).to(tl.float64, bitcast=True)
        elif KIND == 1:
            value = (key ^ LEAST).to(tl.float64)
            value = tl.where(key >= 0, value + 18446744073709551616.0, value)
        else:
            value = key.to(tl.float64)
        value = tl.where(finite, value, 0.0)
        total = tl.sum(value, 0)
        squares = tl.sum(value * value, 0)
    elif DIGITS == BITS:
        value = tl.where(finite, key, 0).to(tl.float32)
        total = tl.sum(value, 0).to(tl.float64)
        squares = tl.sum(value * value, 0).to(tl.float64)
    else:
        # The key of a negative element is -1 less its magnitude's.
        largest = tl.maximum(tl.maximum(tile_high, -1 - tile_low), 0)
        exponent = tl.maximum(254 - (_magnitude(largest, BITS, KIND, DIGITS) >> 23), 1)
        scale = (exponent << 23).to(tl.float32, bitcast=True)
        unscaled = ((1150 - exponent).to(tl.int64) << 52).to(tl.float64, bitcast=True)  # 1 / scale
        bits = _magnitude(tl.where(key < 0, -1 - key, key), BITS, KIND, DIGITS) | (key & LEAST)
        value = tl.where(finite, bits.to(tl.float32, bitcast=True) * scale, 0.0)
        total = tl.sum(value, 0).to(tl.float64) * unscaled
        squares = tl.sum(value * value, 0).to(tl.float64) * unscaled * unscaled
    return total, squares
