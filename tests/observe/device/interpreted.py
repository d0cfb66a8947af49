"""The kernels in Triton's interpreter, against torch. Run by test_kernel.py in a process where Triton interprets."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from aorta_collectors.observe.device import scratch
from aorta_collectors.observe.device.arena import WORDS, Block
from aorta_collectors.observe.device.entries import Arrived, entry_of
from aorta_collectors.observe.device.launch import Kernels, table_of
from aorta_collectors.observe.device.rows import DeviceRows
from aorta_collectors.observe.limits import Limits
from aorta_collectors.observe.readable import plain_values
from aorta_collectors.observe.reduce import Stats, read_rows, reduce_later
from tests.observe.device.fakes import FakeDevice
from tests.observe.numbers import DTYPES, FLOAT8, FLOATS, cases, close, exact_sums

# Small, so that a handful of elements fills several tiles of several programs.
KERNELS = Kernels(tile=8, programs=4)


# An example that fails is shown as it is: to make it smaller takes the interpreter minutes.
PHASES = (Phase.explicit, Phase.generate)


def area() -> torch.Tensor:
    return torch.zeros(scratch.HEADER + scratch.PARTS * scratch.PROGRAMS, dtype=torch.int64)


def by_kernel(values: torch.Tensor, limits: Limits, locate: bool, moments: bool = False) -> Stats:
    form = KERNELS.format(values.dtype)
    assert form is not None
    block = Block(torch.full((2, WORDS), -77), 0)
    parts = area()
    row = block.take(2)[1]
    plan = KERNELS.plan(values, limits, locate, moments)
    KERNELS.reduce(plan, row.address, parts.data_ptr)
    assert not parts[: scratch.HEADER].any(), "the area is not as it was"
    assert torch.equal(block.memory[0], torch.full((WORDS,), -77)), "another row was written to"
    return Arrived({block: block.memory}).stats(entry_of(row, values, locate, moments, form))


def by_torch(values: torch.Tensor, limits: Limits, locate: bool, moments: bool = False) -> Stats:
    return read_rows([(values.numel(), reduce_later(values, limits, locate, moments))])[0]


def comparable(stats: Stats) -> Any:
    place = stats.location
    if place is None or place.value is None or not math.isnan(place.value):
        return stats
    return stats._replace(location=place._replace(value="NaN"))  # type: ignore[arg-type]


def agree(values: torch.Tensor, limits: Limits, locate: bool) -> None:
    """Without sums, and with them, which are close and change nothing else."""
    found, expected = by_kernel(values, limits, locate), by_torch(values, limits, locate, True)
    assert comparable(found) == comparable(expected._replace(moments=None))
    summed = by_kernel(values, limits, locate, True)
    assert comparable(summed._replace(moments=None)) == comparable(found)
    assert close(summed, expected), (summed, expected)


def readable(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.dtype in FLOAT8:
        return tensor.detach()  # as it is: plain_values would convert it
    values, reason = plain_values(tensor)
    assert values is not None, reason
    return values


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_kernel_finds_what_torch_finds(dtype: torch.dtype) -> None:
    @settings(max_examples=12, deadline=None, derandomize=True, phases=PHASES)
    @given(cases(dtype), st.booleans())
    def check(case: tuple[torch.Tensor, Limits], locate: bool) -> None:
        tensor, limits = case
        agree(readable(tensor), limits, locate)

    check()


@st.composite
def longer(draw: st.DrawFn) -> tuple[torch.Tensor, Limits]:
    """Up to some hundred elements in up to five dimensions, in any order and with gaps, some of them bad."""
    shape = draw(st.lists(st.integers(1, 12), min_size=1, max_size=5).filter(lambda shape: 9 < math.prod(shape) < 200))
    dtype = draw(st.sampled_from([torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.int8]))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10**6)))
    whole = torch.randint(-9, 10, (math.prod(shape) * 2,), generator=generator).to(dtype)
    for place in draw(st.lists(st.integers(0, len(whole) - 1), max_size=8)):
        bad = [math.nan, math.inf, -math.inf, 100.0] if dtype.is_floating_point else [100.0]
        whole[place] = draw(st.sampled_from(bad))
    dense = whole[1 : 1 + math.prod(shape)].reshape(shape)
    tensor = dense if draw(st.booleans()) else whole.reshape(*shape, 2)[..., 1]
    tensor = tensor.permute(draw(st.permutations(range(len(shape)))))
    limits = draw(st.sampled_from([Limits(50.0), Limits(8.0), Limits(50.0, low=-8.0), Limits(50.0, 3.0, -3.0)]))
    return tensor, limits


@settings(max_examples=40, deadline=None, derandomize=True, phases=PHASES)
@given(longer(), st.booleans())
def test_tensors_of_many_tiles_in_any_layout(case: tuple[torch.Tensor, Limits], locate: bool) -> None:
    agree(*case, locate)


SUMMED = (
    *(torch.float32, torch.float64, torch.float16, torch.bfloat16, *FLOAT8),
    *(torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint64),
)


@st.composite
def of_any_size(draw: st.DrawFn, dtype: torch.dtype) -> torch.Tensor:
    """Tiles whose elements are as large as each other, and as small and as large as the dtype has them."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10**6)))
    tiles = []
    for _ in range(draw(st.integers(1, 9))):
        wide = torch.randn(draw(st.sampled_from([8, 8, 3])), dtype=torch.float64, generator=generator)
        if dtype.is_floating_point:
            largest, least = torch.finfo(dtype).max, torch.finfo(dtype).tiny
            size = draw(st.sampled_from([1.0, 1e3, 1e25, 1e-25, 1e200, 1e-100, largest / 4, least, least / 2]))
            wide = (wide * size).clamp(-largest, largest)
            for place in draw(st.lists(st.integers(0, len(wide) - 1), max_size=4)):
                wide[place] = draw(st.sampled_from([math.nan, math.inf, -math.inf, 0.0, -0.0, largest, -largest]))
            tiles.append(wide.to(dtype))
        else:
            info = torch.iinfo(dtype)
            tiles.append((wide * draw(st.sampled_from([3.0, info.max / 4]))).clamp(info.min, info.max / 1.01).to(dtype))
    whole = torch.cat([tile.view(torch.uint8) if dtype.itemsize == 1 else tile for tile in tiles])
    return whole.view(dtype) if dtype.itemsize == 1 else whole


@pytest.mark.parametrize("dtype", SUMMED, ids=str)
def test_sums_are_close_to_the_exact_ones_whatever_the_magnitudes(dtype: torch.dtype) -> None:
    @settings(max_examples=8, deadline=None, derandomize=True, phases=PHASES)
    @given(of_any_size(dtype))
    def check(tensor: torch.Tensor) -> None:
        exact = exact_sums(tensor)
        found, again = by_kernel(tensor, Limits(), False, True), by_kernel(tensor, Limits(), True, True)
        assert close(found, found._replace(moments=exact)), (found, exact)
        assert str(found.moments) == str(again.moments)  # a NaN is not equal to itself

    check()


@pytest.mark.parametrize("dtype", [dtype for dtype in SUMMED if dtype.is_floating_point], ids=str)
def test_sums_of_nothing_but_one_value_tell_it_however_small_or_large(dtype: torch.dtype) -> None:
    if dtype.itemsize == 1:
        values = torch.tensor([0, 1, 2, 3, 5, 7, 8, 9, 126, 127, 128, 129, 254, 255], dtype=torch.uint8).view(dtype)
    else:
        info = torch.finfo(dtype)
        least = info.smallest_normal
        wide = [0.0, info.eps * least, -least / 2, least, 2 * least, 1.0, -info.max, info.max / 2, info.max]
        values = torch.tensor(wide, dtype=torch.float64).to(dtype)
    for index in range(len(values)):
        same = values[index : index + 1].expand(11)
        found = by_kernel(same, Limits(), False, True)
        assert close(found, found._replace(moments=exact_sums(same))), (same, found)


def test_sums_of_what_is_not_finite_are_nothing() -> None:
    found = by_kernel(torch.tensor([math.nan, math.inf, -math.inf] * 9), Limits(), False, True)
    assert found.moments == (0.0, 0.0)
    assert (found.finite_mean, found.finite_rms) == (None, None)


@pytest.mark.parametrize("width", [1, 2, 7, 8, 9, 31])
def test_rows_that_go_on_from_one_tile_and_one_program_to_the_next_are_counted_once(width: int) -> None:
    values = torch.zeros(13, width)
    for bad in ([], [0], [values.numel() - 1], range(values.numel()), range(3, values.numel(), 5), [40, 41, 47, 48]):
        values.zero_()
        values.view(-1)[[index % values.numel() for index in bad]] = math.nan
        agree(values, Limits(), True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_zeros_of_either_sign_and_the_smallest_values_keep_to_their_limits(dtype: torch.dtype) -> None:
    tiny = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps
    values = torch.tensor([0.0, -0.0, tiny, -tiny], dtype=dtype)
    assert values[2] > 0
    for limits in (Limits(0.0), Limits(low=0.0), Limits(high=-0.0), Limits(low=-0.0, high=0.0), Limits(tiny / 2)):
        agree(values, limits, True)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_nothing_finite(dtype: torch.dtype) -> None:
    values = torch.full((3, 5), math.nan).to(dtype)
    agree(values, Limits(low=0.0), True)
    assert by_kernel(values, Limits(), False).finite_min is None


def test_a_view_that_repeats_its_elements_counts_them_each_time() -> None:
    agree(torch.tensor([[1.0], [math.inf]]).expand(2, 30), Limits(), True)
    agree(torch.tensor([math.nan]).expand(3, 4, 5), Limits(), False)


def test_an_unaligned_tensor_is_read_all_the_same() -> None:
    agree(torch.arange(40.0)[3:], Limits(30.0), True)


def test_offsets_beyond_31_bits() -> None:
    # Two elements of an expanded whole, far apart: no memory in between is touched.
    storage = torch.empty(2**31 + 40, dtype=torch.int8)
    view = storage.as_strided((3, 2), (2**30 + 10, 1))
    view.copy_(torch.tensor([[1, 2], [3, 4], [5, 99]], dtype=torch.int8))
    agree(view, Limits(50.0), True)


@settings(max_examples=12, deadline=None, derandomize=True, phases=PHASES)
@given(st.lists(longer(), min_size=2, max_size=5), st.booleans())
def test_small_tensors_share_a_launch(several: list[tuple[torch.Tensor, Limits]], locate: bool) -> None:
    device = FakeDevice()
    rows = DeviceRows(pytest.fail, device_of=lambda _: device, kernels=lambda: KERNELS)
    moments = not locate
    with device.no_waiting():
        rows.queue(torch.ones(2), Limits(), locate)
        assert rows.queue_many(several, locate, moments) == list(range(1, len(several) + 1))
        result = rows.seal()
    assert result is not None
    for found, each in zip(result.stats()[1:], several, strict=True):
        expected = by_torch(*each, locate, moments)
        assert comparable(found._replace(moments=None)) == comparable(expected._replace(moments=None))
        assert close(found, expected) if moments else found.moments is None


def test_a_table_is_one_launch_and_is_made_once() -> None:
    launches = []

    class Counting(Kernels):
        def reduce_many(self, *arguments: Any) -> None:
            launches.append(arguments)
            super().reduce_many(*arguments)

    device = FakeDevice()
    rows = DeviceRows(pytest.fail, device_of=lambda _: device, kernels=lambda: Counting(tile=8))
    items = [(torch.full((number + 1,), float(number)), Limits()) for number in range(6)]
    for _ in range(3):
        rows.queue_many(items, False)
        result = rows.seal()
        assert result is not None
        assert [stats.finite_max for stats in result.stats()] == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
        device.advance()
    assert len(launches) == 3
    assert len({arguments[-1] for arguments in launches}) == 1
    assert len(table_of([KERNELS.plan(*items[0], False)] * 3)) == 3 * WORDS


def test_a_graph_uses_only_kernels_that_have_run_before() -> None:
    device = FakeDevice()
    rows = DeviceRows(pytest.fail, device_of=lambda _: device, kernels=lambda: Kernels(tile=8))
    rows.queue(torch.ones(40), Limits(), False)
    rows.seal()
    capture = rows.begin_capture(torch.device("cpu"))
    assert capture is not None
    device.capturing = True
    rows.queue(torch.ones(40) * 2, Limits(), False)
    rows.queue(torch.ones(40).double() * 3, Limits(), False)
    rows.queue(torch.ones(40) * 4, Limits(), False, True)
    device.capturing = False
    rows.end_capture()
    assert [entry.format is None for entry in capture.entries] == [False, True, True]
    assert device.allocated_in_capture == 0
    result = rows.replayed(capture)
    assert result is not None
    assert [stats.finite_max for stats in result.stats()] == [2.0, 3.0, 4.0]
    assert [stats.moments for stats in result.stats()] == [None, None, (160.0, 640.0)]


def test_memory_of_a_gpu_is_never_read_by_the_interpreter() -> None:
    log: list[str] = []
    rows = DeviceRows(log.append, device_of=lambda _: FakeDevice())
    assert rows._kernels_of(torch.device("cuda", 0)) is None
    assert "TRITON_INTERPRET" in log[0]
