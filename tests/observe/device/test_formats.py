"""Keys against the values that they stand for: all of them for small dtypes, chosen ones for the others."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from aorta_collectors.observe.device.formats import FLOAT, FNUZ, SIGNED, UNSIGNED, Format, has_format
from aorta_collectors.observe.device.layout import collapsed
from aorta_collectors.observe.limits import Limits
from tests.observe.numbers import FLOAT8

SMALL = (torch.int8, torch.uint8, torch.int16, torch.float16, torch.bfloat16, *FLOAT8)
WIDE = (torch.float32, torch.float64, torch.int32, torch.int64, torch.uint64)
_BITS = {8: torch.int8, 16: torch.int16, 32: torch.int32, 64: torch.int64}
_ENDS = st.floats(allow_nan=False) | st.floats(-1e5, 1e5) | st.floats(-1e-4, 1e-4) | st.sampled_from([0.0, -0.0])


def key_of(bits: int, form: Format) -> int:
    """A pattern, as a signed number, the way the kernel turns it into a key."""
    if form.kind == SIGNED:
        return bits
    if form.kind == UNSIGNED:
        return bits % 256 if form.bits == 8 else bits ^ -(2**63)
    assert form.kind in (FLOAT, FNUZ)
    if form.kind == FNUZ and bits == -128:
        return 128
    return bits if bits >= 0 else bits ^ (2 ** (form.bits - 1) - 1)


def patterns(dtype: torch.dtype) -> list[int]:
    bits = dtype.itemsize * 8
    return list(range(-(2 ** (bits - 1)), 2 ** (bits - 1)))


def values_of(patterns: list[int], dtype: torch.dtype) -> list[float]:
    values = torch.tensor(patterns, dtype=_BITS[dtype.itemsize * 8]).view(dtype)
    return (values.double() if dtype.is_floating_point else values).tolist()


def check_limits(dtype: torch.dtype, codes: list[int], limits: Limits) -> None:
    form = Format(dtype)
    keys = form.keys(limits)
    for code, value in zip(codes, values_of(codes, dtype), strict=True):
        key = key_of(code, form)
        finite = keys.finite_low <= key <= keys.finite_high
        assert finite == math.isfinite(value)
        if not finite:
            expected = -1 if key == keys.negative_infinity else 1 if key == keys.positive_infinity else 0
            assert expected == (0 if math.isnan(value) else math.copysign(1, value))
            assert not keys.clean_low <= key <= keys.clean_high
            continue
        huge, out = abs(value) > limits.huge, value < limits.low or value > limits.high
        assert (key < keys.huge_low or key > keys.huge_high) == huge
        assert (key < keys.low or key > keys.high) == out
        assert (keys.clean_low <= key <= keys.clean_high) == (not huge and not out)


class TestFormats:
    @pytest.mark.parametrize("dtype", SMALL, ids=str)
    def test_every_pattern_is_where_its_value_belongs(self, dtype: torch.dtype) -> None:
        form = Format(dtype)
        codes = patterns(dtype)
        pairs = [
            (key_of(code, form), value)
            for code, value in zip(codes, values_of(codes, dtype), strict=True)
            if not math.isnan(value)
        ]
        pairs.sort()
        assert all(low[1] <= high[1] for low, high in itertools.pairwise(pairs))
        assert all(form.value(key) == value for key, value in pairs)

    @pytest.mark.parametrize("dtype", SMALL, ids=str)
    def test_limits_hold_for_every_pattern(self, dtype: torch.dtype) -> None:
        codes = patterns(dtype) if dtype.itemsize == 1 else [*patterns(dtype)[::61], 0, -(2**15), 2**15 - 1, -1]

        @settings(max_examples=25, deadline=None, derandomize=True)
        @given(_ENDS, _ENDS, _ENDS)
        def check(huge: float, low: float, high: float) -> None:
            check_limits(dtype, codes, Limits(abs(huge), low, high))

        check()

    @pytest.mark.parametrize("dtype", WIDE, ids=str)
    def test_limits_hold_for_patterns_around_them(self, dtype: torch.dtype) -> None:
        bits = dtype.itemsize * 8

        @settings(max_examples=100, deadline=None, derandomize=True)
        @given(
            st.lists(st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1), min_size=3, max_size=3), st.integers(0, 2)
        )
        def check(codes: list[int], shift: int) -> None:
            ends = [value for value in values_of(codes, dtype) if math.isfinite(value)] or [0.0]
            near = [
                code + step
                for code in codes
                for step in (-1, 0, 1)
                if -(2 ** (bits - 1)) <= code + step < 2 ** (bits - 1)
            ]
            limits = Limits(abs(ends[0]), ends[shift % len(ends)], ends[-1])
            check_limits(dtype, [*near, 0, -1, -(2 ** (bits - 1))], limits)

        check()

    @pytest.mark.parametrize("dtype", WIDE, ids=str)
    @given(st.data())
    @settings(max_examples=50, deadline=None, derandomize=True)
    def test_a_key_stands_for_its_value(self, dtype: torch.dtype, data: st.DataObject) -> None:
        bits = dtype.itemsize * 8
        code = data.draw(st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1))
        (value,) = values_of([code], dtype)
        found = Format(dtype).value(key_of(code, Format(dtype)))
        assert found == float(value) or (math.isnan(found) and math.isnan(value))

    @pytest.mark.parametrize("dtype", [dtype for dtype in SMALL + WIDE if dtype.is_floating_point], ids=str)
    def test_the_digits_are_those_between_one_and_the_next_number(self, dtype: torch.dtype) -> None:
        one = torch.ones(1, dtype=torch.float64).to(dtype).view(_BITS[dtype.itemsize * 8])
        after = (one + 1).view(dtype).double().item()
        assert after - 1 == 2.0 ** -Format(dtype).digits

    def test_what_has_no_order_has_no_format(self) -> None:
        assert not any(map(has_format, (torch.complex64, torch.bool, torch.qint8, torch.float4_e2m1fn_x2)))


class TestLayout:
    @given(st.lists(st.integers(1, 4), min_size=1, max_size=5), st.randoms(use_true_random=False), st.booleans())
    @settings(max_examples=200, deadline=None, derandomize=True)
    def test_the_dimensions_that_are_left_reach_every_element(
        self, shape: list[int], random: object, in_order: bool
    ) -> None:
        order = list(range(len(shape)))
        random.shuffle(order)  # type: ignore[attr-defined]
        whole = torch.arange(torch.Size(shape).numel() * 2).reshape(*shape, 2)
        view = whole[..., 0] if random.random() < 0.5 else whole.reshape(-1)[: torch.Size(shape).numel()].reshape(shape)  # type: ignore[attr-defined]
        tensor = view.permute(order)
        if random.random() < 0.3:  # type: ignore[attr-defined]
            tensor = tensor.expand(2, *tensor.shape)
        dims = collapsed(tensor, in_order=in_order)
        sizes, strides = zip(*dims, strict=True) if dims else ((tensor.numel(),), (1,))
        found = torch.as_strided(whole, sizes, strides, tensor.storage_offset()).reshape(-1)
        expected = tensor.reshape(-1)
        if not in_order:
            found, expected = found.sort().values, expected.sort().values
        assert torch.equal(found, expected)

    def test_a_transposed_tensor_is_read_as_it_lies(self) -> None:
        tensor = torch.zeros(3, 4, 5).permute(2, 0, 1)
        assert collapsed(tensor, in_order=False) == []
        assert collapsed(tensor, in_order=True) == [(5, 1), (12, 5)]
