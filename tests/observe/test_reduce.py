"""Reductions against a plain loop over Python numbers."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import forward_ad

from aorta_collectors.observe.limits import Limits
from aorta_collectors.observe.readable import plain_values
from aorta_collectors.observe.reduce import (
    CleanRange,
    Location,
    Stats,
    read_rows,
    reduce_later,
    reduce_now,
    reduce_now_with_moments,
)
from aorta_collectors.observe.sums import Sums
from tests.observe.numbers import COMPLEX, DTYPES, FLOATS, cases, close, elements, exact_sums, shape_as_read

NOWHERE = Location(0, None, None, None, None)


def reference(values: list[Any], shape: tuple[int, ...], limits: Limits, locate: bool = False) -> Stats:
    """What Stats must say of `values`, which are exactly the elements in row-major order."""
    finite = [value for value in values if math.isfinite(value)]
    huge = [abs(value) > limits.huge for value in finite]
    oob = [value < limits.low or value > limits.high for value in finite]
    infinite = [value for value in values if math.isinf(value)]
    return Stats(
        numel=len(values),
        nan_count=sum(1 for value in values if math.isnan(value)),
        inf_count=len(infinite),
        huge_count=sum(huge),
        finite_count=len(finite),
        finite_min=float(min(finite)) if finite else None,
        finite_max=float(max(finite)) if finite else None,
        posinf_count=sum(1 for value in infinite if value > 0),
        oob_count=sum(oob),
        location=located(values, shape, limits) if locate else None,
    )


def located(values: list[Any], shape: tuple[int, ...], limits: Limits) -> Location:
    def is_bad(value: Any) -> bool:
        return not (math.isfinite(value) and abs(value) <= limits.huge and limits.low <= value <= limits.high)

    bad = [index for index, value in enumerate(values) if is_bad(value)]
    if not bad:
        return NOWHERE
    first = bad[0]
    in_a_row = math.prod(shape[1:])  # of those along dim 0
    row, column = divmod(first, in_a_row) if len(shape) > 1 else (0, first)
    return Location(len({index // in_a_row for index in bad}), first, row, column, float(values[first]))


def comparable(stats: Stats) -> Any:
    """Stats with a NaN that equals another."""
    place = stats.location
    if place is None or place.value is None or not math.isnan(place.value):
        return stats
    return stats._replace(location=place._replace(value="NaN"))  # type: ignore[arg-type]


def values_of(tensor: torch.Tensor) -> torch.Tensor:
    values, reason = plain_values(tensor)
    assert values is not None, reason
    return values


def now(tensor: torch.Tensor, limits: Limits, locate: bool = False) -> Stats:
    values = values_of(tensor)
    low, high, stats = reduce_now(values, limits, locate)
    if stats is not None:
        assert stats.bad
        return stats
    return Stats.clean(values.numel(), low, high)._replace(location=NOWHERE if locate else None)


def later(tensor: torch.Tensor, limits: Limits, locate: bool = False) -> Stats:
    values = values_of(tensor)
    return read_rows([(values.numel(), reduce_later(values, limits, locate))])[0]


def contents(tensor: torch.Tensor) -> tuple[int, torch.Tensor]:
    """What must not change: how often it was written to, and all bytes of its storage."""
    return tensor._version, torch.tensor([], dtype=torch.uint8).set_(tensor.untyped_storage()).clone()


class TestReductions:
    """Both ways of reducing agree with the loop, for every dtype, shape, layout and set of limits."""

    @pytest.mark.filterwarnings("ignore:ComplexHalf")
    @pytest.mark.parametrize("dtype", DTYPES, ids=str)
    def test_a_reduction_is_what_a_loop_over_the_elements_says(self, dtype: torch.dtype) -> None:
        @settings(max_examples=60, deadline=None, derandomize=True)
        @given(cases(dtype), st.booleans())
        def check(case: tuple[torch.Tensor, Limits], locate: bool) -> None:
            tensor, limits = case
            expected = comparable(reference(elements(tensor), shape_as_read(tensor), limits, locate))
            version, before = contents(tensor)
            assert comparable(now(tensor, limits, locate)) == expected
            assert comparable(later(tensor, limits, locate)) == expected
            same_version, after = contents(tensor)
            assert version == same_version
            assert torch.equal(before, after)

        check()

    @pytest.mark.parametrize("dtype", [dtype for dtype in FLOATS if dtype.itemsize > 1], ids=str)
    @pytest.mark.parametrize("reduction", [now, later])
    def test_where_nothing_is_finite_there_is_no_range(self, dtype: torch.dtype, reduction: Any) -> None:
        stats = reduction(torch.tensor([[math.nan, math.inf, -math.inf]], dtype=dtype), Limits(low=0.0, high=1.0))
        assert stats == Stats(3, 1, 2, 0, 0, None, None, posinf_count=1, oob_count=0)
        assert stats.finite_abs_max is None

    @pytest.mark.parametrize("reduction", [now, later])
    def test_the_threshold_itself_is_not_huge_and_the_next_value_is(self, reduction: Any) -> None:
        limit = torch.tensor(1e10)
        above = torch.nextafter(limit, torch.tensor(torch.inf))
        assert not reduction(torch.stack([limit, -limit]), Limits(1e10)).bad
        assert reduction(torch.stack([limit, -above, above]), Limits(1e10)).huge_count == 2

    @pytest.mark.parametrize("reduction", [now, later])
    def test_limits_between_two_values_of_the_dtype_compare_exactly(self, reduction: Any) -> None:
        # float32 has neither 0.1 nor 0.7: 0.1 is rounded up to its neighbour there, 0.7 is rounded down.
        values = torch.tensor([0.1, 0.7])
        assert reduction(values[:1], Limits(0.1)).huge_count == 1
        assert reduction(values[1:], Limits(0.7)).huge_count == 0
        assert reduction(values, Limits(low=0.1, high=0.7)).oob_count == 0
        assert reduction(values, Limits(low=0.7, high=0.7)).oob_count == 2
        assert reduction(values, Limits(low=0.1, high=0.1)).oob_count == 2

    @pytest.mark.parametrize("reduction", [now, later])
    def test_without_any_limit_an_infinity_is_bad_all_the_same(self, reduction: Any) -> None:
        limits = Limits(math.inf)
        assert reduction(torch.tensor([math.inf, -math.inf]), limits).kind == "inf"
        assert reduction(torch.tensor([-math.inf]), limits).only_negative_infinite
        assert not reduction(torch.tensor([3e38]), limits).bad

    @pytest.mark.parametrize("reduction", [now, later])
    def test_integers_compare_exactly_even_where_float64_rounds_them(self, reduction: Any) -> None:
        assert reduction(torch.tensor([2**53 + 1]), Limits(float(2**53))).huge_count == 1
        unsigned = torch.tensor([2**63 + 1, 2**63 - 1], dtype=torch.uint64)
        assert reduction(unsigned, Limits(float(2**63))).huge_count == 1
        assert reduction(unsigned, Limits(1e30, low=float(2**63))).oob_count == 1

    @pytest.mark.parametrize("reduction", [now, later])
    def test_a_range_without_any_value_of_an_integer_dtype_holds_no_element(self, reduction: Any) -> None:
        values = torch.tensor([0, 5, 255], dtype=torch.uint8)
        assert reduction(values, Limits(low=-9.0, high=-1.0)).oob_count == 3
        assert reduction(values, Limits(low=5.2, high=5.8)).oob_count == 3
        assert reduction(values, Limits(low=256.0, high=math.inf)).oob_count == 3

    @pytest.mark.parametrize("reduction", [now, later])
    def test_the_first_bad_element_is_located_in_the_order_of_the_rows(self, reduction: Any) -> None:
        tensor = torch.zeros(4, 2, 3)
        tensor[3, 0, 0] = math.nan
        tensor[1, 1, 2] = -math.inf
        tensor[1, 1, 1] = 61.0
        assert reduction(tensor, Limits(high=60.0), True).location == Location(2, 10, 1, 4, 61.0)

    @pytest.mark.parametrize("reduction", [now, later])
    def test_a_one_dimensional_tensor_is_one_row_to_find_a_place_in_and_many_to_count(self, reduction: Any) -> None:
        assert reduction(torch.tensor([0.0, 7.0, 8.0]), Limits(1.0), True).location == Location(2, 1, 0, 1, 7.0)

    @given(st.lists(st.tuples(st.lists(st.floats(width=32), min_size=1, max_size=4), st.booleans()), max_size=5))
    @settings(max_examples=40, deadline=None, derandomize=True)
    def test_rows_of_both_kinds_come_back_in_the_order_in_which_they_were_queued(self, tensors: list[Any]) -> None:
        limits = Limits(1.0, low=0.0)
        rows = [(len(values), reduce_later(torch.tensor(values), limits, locate)) for values, locate in tensors]
        expected = [reference(values, (len(values),), limits, locate) for values, locate in tensors]
        assert [comparable(stats) for stats in read_rows(rows)] == [comparable(stats) for stats in expected]

    def test_a_queued_row_keeps_no_memory_of_the_tensor(self) -> None:
        assert reduce_later(torch.zeros(1000), Limits(), locate=True).untyped_storage().nbytes() <= 12 * 8


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
class TestSurroundings:
    """What a program has switched on around its forward changes no reduction."""

    @pytest.mark.parametrize(
        "around",
        [
            pytest.param(lambda: torch.device("meta"), id="default device"),
            pytest.param(lambda: torch.autocast("cpu", torch.bfloat16), id="autocast"),
            pytest.param(torch.inference_mode, id="inference mode"),
            pytest.param(torch.enable_grad, id="grad"),
            pytest.param(forward_ad.dual_level, id="forward mode"),
        ],
    )
    def test_a_context_of_the_program_changes_nothing(self, around: Any) -> None:
        tensor = torch.tensor([[1.1, math.nan], [70.0, 1.0]], requires_grad=True)
        with around():
            stats = [reduction(tensor, Limits(high=60.0), True) for reduction in (now, later)]
            assert not now(tensor[1:, 1:], Limits()).bad
        for entry in map(comparable, stats):
            assert entry == comparable(reference(elements(tensor), (2, 2), Limits(high=60.0), True))

    def test_a_tensor_with_a_tangent_is_read_without_it(self) -> None:
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(torch.ones(2), torch.ones(2))
            assert later(dual, Limits()) == now(dual, Limits()) == Stats.clean(2, 1.0, 1.0)
            assert forward_ad.unpack_dual(dual).tangent is not None

    @pytest.mark.parametrize("transform", [torch.vmap, torch.func.grad], ids=["vmap", "grad"])
    def test_a_tensor_from_outside_a_transform_is_read_inside_it(self, transform: Any) -> None:
        outside = torch.tensor([[3.0], [math.inf]])
        seen = []

        def function(x: torch.Tensor) -> torch.Tensor:
            seen.extend([now(outside, Limits(), True), later(outside, Limits(), True)])
            return x.sum()

        transform(function)(torch.ones(2))
        assert seen == [reference([3.0, math.inf], (2, 1), Limits(), True)] * 2

    @pytest.mark.parametrize("dtype", [torch.float32, *COMPLEX], ids=str)
    def test_a_tensor_of_zeros_that_are_not_in_memory_is_clean(self, dtype: torch.dtype) -> None:
        zeros = torch._efficientzerotensor((3,), dtype=dtype)
        count = 6 if dtype.is_complex else 3
        assert (
            now(zeros, Limits(), True) == later(zeros, Limits(), True) == reference([0.0] * count, (3,), Limits(), True)
        )


class TestStats:
    def test_the_largest_magnitude_may_be_negative(self) -> None:
        assert Stats.clean(2, -7.0, 3.0).finite_abs_max == 7.0

    def test_clean_is_not_bad_and_of_no_kind(self) -> None:
        assert not Stats.clean(2, -7.0, 3.0).bad
        assert Stats.clean(2, -7.0, 3.0).kind is None

    @pytest.mark.parametrize(
        ("values", "kind"),
        [([math.nan, math.inf, 9.0], "nan"), ([-math.inf, 9.0], "inf"), ([9.0, -1.0], "huge"), ([-1.0, 0.0], "oob")],
    )
    def test_the_kind_is_the_worst_of_what_is_there(self, values: list[float], kind: str) -> None:
        stats = now(torch.tensor(values), Limits(5.0, low=0.0))
        assert stats.bad
        assert stats.kind == kind

    @pytest.mark.parametrize(
        ("values", "answer"),
        [
            ([-math.inf, 0.0], True),
            ([-math.inf, math.inf], False),
            ([-math.inf, math.nan], False),
            ([0.0, 1.0], False),
        ],
    )
    def test_a_mask_of_negative_infinities_is_told_apart(self, values: list[float], answer: bool) -> None:
        assert now(torch.tensor(values), Limits()).only_negative_infinite is answer


class TestWithoutRange:
    """Where nobody wants the range of a clean tensor, a sum of squares may speak for it; what it says must be true."""

    MANY = 32768  # from here on it is asked
    EDGES = (0.0, -0.0, 1.0, 99.0, 100.0, -100.0, 100.00001, -101.0, 1e10, 3e19, -3e38, 1e-45, math.inf, math.nan)
    LIMITS = (
        Limits(),
        Limits(100.0),
        Limits(math.inf),
        Limits(0.0),
        Limits(1e-30),
        Limits(1e-25),
        Limits(1e25),
        Limits(1e10, 0.0),
    )

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    @pytest.mark.parametrize("limits", [*LIMITS, Limits(1e10, -5.0, 200.0), Limits(low=1.0, high=0.5)])
    @given(st.sampled_from(EDGES), st.sampled_from((0.0, 1.0, 0.01)), st.integers(0, MANY - 1))
    @settings(max_examples=15, deadline=None)
    def test_clean_is_what_is_clean(
        self, dtype: torch.dtype, limits: Limits, value: float, rest: float, place: int
    ) -> None:
        tensor = torch.full((64, 512), rest, dtype=dtype)
        tensor.view(-1)[place] = value
        low, high, stats = reduce_now(tensor, limits)
        unranged = reduce_now(tensor, limits, ranged=False)
        assert repr(unranged[2]) == repr(stats)
        assert unranged[:2] in ((low, high), (None, None))

    def test_it_is_the_sum_of_squares_that_speaks(self) -> None:
        tensor = torch.ones(self.MANY)
        assert reduce_now(tensor, Limits(), ranged=False) == (None, None, None)
        for other in (tensor[:-1], tensor.bfloat16(), torch.ones(2, self.MANY).t(), torch.ones(self.MANY).int()):
            assert reduce_now(other, Limits(), ranged=False) == (1.0, 1.0, None)

    @given(st.floats(0, 2.0**127, width=32), st.floats(0, 2.0**127, width=32))
    def test_a_rounded_sum_is_never_below_a_term(self, a: float, b: float) -> None:
        """What the proof stands on, in the arithmetic of float32."""
        x = torch.tensor([a, b])
        assert torch.dot(x, x).item() >= torch.tensor(max(a, b)).square().item()


def summed_now(tensor: torch.Tensor, limits: Limits, locate: bool = False) -> Stats:
    _, _, stats = reduce_now_with_moments(values_of(tensor), limits, locate, CleanRange.of(limits), True)
    assert stats is not None
    return stats if stats.bad or not locate else stats._replace(location=NOWHERE)


def summed_later(tensor: torch.Tensor, limits: Limits, locate: bool = False) -> Stats:
    values = values_of(tensor)
    return read_rows([(values.numel(), reduce_later(values, limits, locate, True))])[0]


class TestMoments:
    """Sums over what is finite, beside all that a reduction says without them."""

    @pytest.mark.filterwarnings("ignore:ComplexHalf")
    @pytest.mark.parametrize("dtype", DTYPES, ids=str)
    def test_they_are_those_of_the_elements_and_change_nothing_else(self, dtype: torch.dtype) -> None:
        @settings(max_examples=30, deadline=None, derandomize=True)
        @given(cases(dtype), st.booleans())
        def check(case: tuple[torch.Tensor, Limits], locate: bool) -> None:
            tensor, limits = case
            plain = reference(elements(tensor), shape_as_read(tensor), limits, locate)
            exact = exact_sums(tensor)
            version, before = contents(tensor)
            for reduction in (summed_now, summed_later):
                found = reduction(tensor, limits, locate)
                assert comparable(found._replace(moments=None)) == comparable(plain)
                assert close(found, plain._replace(moments=exact), slack=1e-14), (found, exact)
            same_version, after = contents(tensor)
            assert (version, before.tolist()) == (same_version, after.tolist())

        check()

    @pytest.mark.parametrize("reduction", [summed_now, summed_later])
    @pytest.mark.parametrize(
        ("values", "mean", "rms"),
        [
            ([3.0, -4.0], -0.5, math.sqrt(12.5)),
            ([3.0, math.nan, -4.0, math.inf, -math.inf], -0.5, math.sqrt(12.5)),
            ([3e38, 3e38], pytest.approx(3e38), pytest.approx(3e38)),
            ([math.nan, math.inf], None, None),
            ([0.0], 0.0, 0.0),
        ],
    )
    def test_mean_and_rms_are_of_the_finite_elements(
        self, values: list[float], mean: float | None, rms: float | None, reduction: Any
    ) -> None:
        stats = reduction(torch.tensor(values), Limits())
        assert (stats.finite_mean, stats.finite_rms) == (mean, rms)

    @pytest.mark.parametrize("reduction", [summed_now, summed_later])
    def test_what_float64_cannot_hold_is_not_known(self, reduction: Any) -> None:
        stats = reduction(torch.tensor([1e200, 1e200], dtype=torch.float64), Limits())
        assert (stats.finite_mean, stats.finite_rms) == (pytest.approx(1e200), None)
        stats = reduction(torch.tensor([1.7e308, 1.7e308], dtype=torch.float64), Limits())
        assert (stats.finite_mean, stats.finite_rms) == (None, None)

    def test_without_being_asked_for_there_are_none(self) -> None:
        for stats in (Stats.clean(2, 0.0, 1.0), now(torch.tensor([math.nan]), Limits())):
            assert (stats.moments, stats.finite_mean, stats.finite_rms) == (None, None, None)

    def test_a_large_tensor_is_summed_in_pieces(self) -> None:
        values = torch.arange(3_000_003, dtype=torch.int64) % 7
        values[-1] = 1000
        exact = Sums(float(values.sum()), float(values.square().sum()))
        for each in (values, values.view(3, -1).t(), values.float()):
            assert summed_later(each, Limits()).moments == summed_now(each, Limits()).moments == exact

    def test_a_clean_tensor_whose_range_nobody_wants_goes_without(self) -> None:
        clean = CleanRange.of(Limits())
        assert reduce_now_with_moments(torch.ones(40_000), Limits(), False, clean, False) == (None, None, None)
        stats = reduce_now_with_moments(torch.tensor([2.0, math.nan]), Limits(), False, clean, False)[2]
        assert stats is not None
        assert stats.moments == (2.0, 4.0)

    def test_rows_with_and_without_them_come_back_together(self) -> None:
        values = torch.tensor([1.0, -2.0, math.inf])
        rows = [(3, reduce_later(values, Limits(), *how)) for how in ((False, True), (True, False), (True, True))]
        found = read_rows(rows)
        assert [stats.moments for stats in found] == [(-1.0, 5.0), None, (-1.0, 5.0)]
        assert [stats.location is None for stats in found] == [True, False, False]

    @pytest.mark.parametrize("around", [torch.inference_mode, lambda: torch.device("meta"), torch.enable_grad])
    def test_a_context_of_the_program_changes_nothing(self, around: Any) -> None:
        tensor = torch.tensor([[1.5, math.nan], [70.0, 1.0]], requires_grad=True)
        with around():
            found = [reduction(tensor, Limits()).moments for reduction in (summed_now, summed_later)]
        assert found == [(72.5, 4903.25)] * 2
