"""Reductions against a plain loop over Python numbers."""

from __future__ import annotations

import math
import sys
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from aorta_collectors.observe.reduce import Stats, read_rows, readable, reduce_later, reduce_now
from tests.observe.watching import one_process_group

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.float8_e4m3fn)
INTEGERS = (torch.int64, torch.int8)
DTYPES = (*FLOATS, *INTEGERS, torch.bool, torch.complex64)

# In and out of the range of each dtype, and between its values: 0.1 and 1e10 + 1 have no float32, 2**53 + 1 no float64.
LIMITS = (0.1, 1.0, 3.0, 126.99, 127.0, 448.0, 448.5, 65504.0, 65505.0, 1e10, 1e10 + 1, 3.4e38, 3.5e38, 1e300)
EXTREMES = (float(2**53), float(2**63), 1e-45, 5e-324, 2.0**-9, sys.float_info.max)
THRESHOLDS = st.sampled_from([*LIMITS, *EXTREMES]) | st.floats(min_value=1e-30, max_value=1e30)


def reference(values: list[float] | list[int], threshold: float) -> Stats:
    """What Stats must say of `values`, which are exactly the tensor's elements."""
    finite = [value for value in values if math.isfinite(value)]
    return Stats(
        numel=len(values),
        nan_count=sum(1 for value in values if math.isnan(value)),
        inf_count=sum(1 for value in values if math.isinf(value)),
        huge_count=sum(1 for value in finite if abs(value) > threshold),
        finite_count=len(finite),
        finite_min=float(min(finite)) if finite else None,
        finite_max=float(max(finite)) if finite else None,
    )


def elements(tensor: torch.Tensor) -> list[Any]:
    """The elements as exact Python numbers, real and imaginary parts for a complex tensor."""
    if tensor.is_complex():
        return [part for value in tensor.flatten().tolist() for part in (value.real, value.imag)]
    if tensor.is_floating_point():
        return tensor.double().flatten().tolist()
    return [int(value) for value in tensor.flatten().tolist()]


def now(tensor: torch.Tensor, threshold: float) -> Stats:
    plain = readable(tensor)
    assert plain is not None
    low, high, stats = reduce_now(plain, threshold)
    return Stats.clean(plain.numel(), low, high) if stats is None else stats


def later(tensor: torch.Tensor, threshold: float) -> Stats:
    plain = readable(tensor)
    assert plain is not None
    return read_rows([(plain.numel(), reduce_later(plain, threshold))])[0]


def _around(threshold: float, dtype: torch.dtype) -> list[float]:
    """The threshold as the dtype rounds it, and its neighbours there: where an inexact comparison goes wrong."""
    middle = torch.tensor(threshold, dtype=torch.float64).to(dtype)
    if dtype in (torch.float32, torch.float64):
        up = torch.nextafter(middle, torch.tensor(torch.inf, dtype=dtype))
        down = torch.nextafter(middle, torch.tensor(-torch.inf, dtype=dtype))
        return [float(value) for value in (middle, up, down)]
    return [float(middle), float(middle) * 1.01, float(middle) * 0.99]


@st.composite
def cases(draw: st.DrawFn, dtype: torch.dtype) -> tuple[torch.Tensor, float]:
    """A tensor of `dtype` in some layout, and a threshold near some of its values."""
    threshold = draw(THRESHOLDS)
    count = draw(st.sampled_from([1, 2, 6, 12]))
    if dtype is torch.bool:
        value: st.SearchStrategy[Any] = st.booleans()
    elif dtype in INTEGERS:
        info = torch.iinfo(dtype)
        near = [v for v in (int(threshold) + d for d in (-1, 0, 1)) if v <= info.max]
        signed = [*near, *(-v for v in near), info.min, info.max, 0]
        value = st.sampled_from(signed) | st.integers(info.min, info.max)
    else:
        near_floats = _around(threshold, torch.float32 if dtype is torch.complex64 else dtype)
        special = [math.nan, math.inf, -math.inf, 0.0, -0.0, *near_floats, *(-v for v in near_floats)]
        value = st.sampled_from(special) | st.floats(allow_nan=True, allow_infinity=True)
    flat = draw(st.lists(value, min_size=count, max_size=count))
    if dtype is torch.complex64:
        other = draw(st.lists(value, min_size=count, max_size=count))
        tensor = torch.complex(torch.tensor(flat, dtype=torch.float64), torch.tensor(other, dtype=torch.float64))
        tensor = tensor.to(dtype)
        tensor = tensor.conj() if draw(st.booleans()) else tensor
    elif dtype in FLOATS:
        tensor = torch.tensor(flat, dtype=torch.float64).to(dtype)
    else:
        tensor = torch.tensor(flat, dtype=dtype)
    return draw(layouts(tensor)), threshold


@st.composite
def layouts(draw: st.DrawFn, tensor: torch.Tensor) -> torch.Tensor:
    """`tensor` as it is, as a scalar, or as a view that is not contiguous."""
    kind = draw(st.sampled_from(["as it is", "0-dim", "transposed", "strided", "expanded", "requires grad"]))
    if kind == "0-dim":
        return tensor[0]
    if kind == "transposed" and tensor.numel() > 1:
        return tensor.reshape(2, -1).t()
    if kind == "strided":
        return tensor[::2]
    if kind == "expanded":
        return tensor[:1].expand(3, 1)
    if kind == "requires grad" and (tensor.is_floating_point() or tensor.is_complex()):
        return tensor.detach().requires_grad_()
    return tensor


class TestReductions:
    """Both ways of reducing agree with the loop, for every dtype, layout and threshold."""

    @pytest.mark.parametrize("dtype", DTYPES, ids=str)
    @pytest.mark.parametrize("reduction", [now, later])
    def test_a_reduction_is_what_a_loop_over_the_elements_says(self, dtype: torch.dtype, reduction: Any) -> None:
        @settings(max_examples=80, deadline=None, derandomize=True)
        @given(cases(dtype))
        def check(case: tuple[torch.Tensor, float]) -> None:
            tensor, threshold = case
            assert reduction(tensor, threshold) == reference(elements(tensor), threshold)

        check()

    @pytest.mark.parametrize("dtype", FLOATS, ids=str)
    @pytest.mark.parametrize("reduction", [now, later])
    def test_where_nothing_is_finite_there_is_no_range(self, dtype: torch.dtype, reduction: Any) -> None:
        stats = reduction(torch.full((2, 3), math.nan).to(dtype), 1e10)
        assert stats == Stats(6, 6, 0, 0, 0, None, None)
        assert stats.finite_abs_max is None
        assert stats.bad

    @pytest.mark.parametrize("reduction", [now, later])
    def test_the_threshold_itself_is_not_huge_and_the_next_value_is(self, reduction: Any) -> None:
        limit = torch.tensor(1e10)
        above = torch.nextafter(limit, torch.tensor(torch.inf))
        assert not reduction(torch.stack([limit, -limit]), 1e10).bad
        assert reduction(torch.stack([limit, -above, above]), 1e10).huge_count == 2

    @pytest.mark.parametrize("reduction", [now, later])
    def test_a_threshold_between_two_values_of_the_dtype_is_compared_exactly(self, reduction: Any) -> None:
        # float32 has neither 0.1 nor 0.7: 0.1 is rounded up to its neighbour there, which is huge; 0.7 is rounded down.
        values = torch.tensor([0.1, 0.7])
        assert reduction(values[:1], 0.1).huge_count == 1
        assert reduction(values[1:], 0.7).huge_count == 0

    @pytest.mark.parametrize("reduction", [now, later])
    def test_an_integer_just_above_the_threshold_is_huge_even_where_float64_rounds_it(self, reduction: Any) -> None:
        assert reduction(torch.tensor([2**53 + 1]), float(2**53)).huge_count == 1

    @pytest.mark.parametrize("dtype", [torch.uint8, torch.uint16, torch.uint32, torch.uint64], ids=str)
    @pytest.mark.parametrize("reduction", [now, later])
    def test_unsigned_integers_are_read(self, dtype: torch.dtype, reduction: Any) -> None:
        assert reduction(torch.tensor([3, 200], dtype=dtype), 100.0) == Stats(2, 0, 0, 1, 2, 3.0, 200.0)

    @given(st.lists(st.lists(st.floats(width=32), min_size=1, max_size=4), min_size=1, max_size=5))
    @settings(max_examples=40, deadline=None, derandomize=True)
    def test_many_rows_come_back_in_the_order_in_which_they_were_queued(self, tensors: list[list[float]]) -> None:
        rows = [(len(values), reduce_later(torch.tensor(values), 1.0)) for values in tensors]
        assert read_rows(rows) == [reference(values, 1.0) for values in tensors]

    def test_no_rows_are_no_stats(self) -> None:
        assert read_rows([]) == []


class TestStats:
    def test_the_largest_magnitude_may_be_negative(self) -> None:
        assert Stats.clean(2, -7.0, 3.0).finite_abs_max == 7.0

    def test_clean_is_not_bad(self) -> None:
        assert not Stats.clean(2, -7.0, 3.0).bad


class TestReadable:
    """What has no strided elements in memory is not read, and what has is read in place."""

    @pytest.mark.filterwarnings("ignore")
    @pytest.mark.parametrize(
        "make",
        [
            pytest.param(lambda: torch.empty(0, 3), id="empty"),
            pytest.param(lambda: torch.empty(2, device="meta"), id="meta"),
            pytest.param(lambda: torch.eye(2).to_sparse(), id="sparse coo"),
            pytest.param(lambda: torch.eye(2).to_sparse_csr(), id="sparse csr"),
            pytest.param(lambda: torch.eye(2).to_mkldnn(), id="mkldnn"),
            pytest.param(lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), id="nested strided"),
            pytest.param(
                lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
                id="nested jagged",
            ),
            pytest.param(lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.quint8), id="quantized"),
        ],
    )
    def test_a_tensor_without_strided_elements_is_not_readable(self, make: Any) -> None:
        assert readable(make()) is None

    def test_a_parameter_is_read_in_place_and_without_its_graph(self) -> None:
        parameter = torch.nn.Parameter(torch.ones(2))
        plain = readable(parameter)
        assert plain is not None
        assert plain.data_ptr() == parameter.data_ptr()
        assert not plain.requires_grad

    def test_of_a_distributed_tensor_the_local_shard_is_read_in_place(self) -> None:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import Shard, distribute_tensor

        with one_process_group():
            tensor = distribute_tensor(torch.tensor([1.0, -5.0]), init_device_mesh("cpu", (1,)), [Shard(0)])
            plain = readable(tensor)
            assert type(plain) is torch.Tensor
            assert plain.data_ptr() == tensor.to_local().data_ptr()
            assert now(tensor, 2.0) == Stats(2, 0, 0, 1, 2, -5.0, 1.0)
