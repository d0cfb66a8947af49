"""On the device, kernels find what torch finds: every dtype, layout and size."""

from __future__ import annotations

import itertools
import math
from typing import Any

import torch
from torch import Tensor

from aorta_collectors.observe.device.rows import DeviceRows
from aorta_collectors.observe.limits import Limits
from aorta_collectors.observe.reduce import Stats, read_rows, reduce_later

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
FLOAT8 = (torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float8_e5m2fnuz)
INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)
LIMITS = (Limits(), Limits(3.0), Limits(3.0, low=-2.0, high=2.5), Limits(low=0.0), Limits(math.inf, high=-1.0))
SHAPES = ((), (1,), (7,), (4097,), (3, 5), (129, 257), (2, 3, 4, 5), (64, 1), (5, 100_003), (1 << 22,), (1000, 1000, 7))
# Of these, in every layout: each takes a kernel of its own, and its time to compile.
STRIDED = (torch.float32, torch.float64, torch.bfloat16)
LARGE = 2**31 + 5
SLACK = 2e-6  # of the sum of the magnitudes, and of the squares


def run(report: Any, options: Any) -> None:
    for dtype in (*FLOATS, *FLOAT8, *INTEGERS):
        report.check(f"results {dtype}", lambda dtype=dtype: _agree_on(dtype))
    for dtype in (*FLOATS, *FLOAT8, *INTEGERS):
        report.check(f"sums {dtype}", lambda dtype=dtype: _sums(dtype))
    report.check("results of small tensors in one launch", _together)
    report.check("results do not change from run to run", _repeatable)
    report.check("results on several streams", _streams)
    report.check("more than 2**31 elements", _large)


def _fail(message: str) -> None:
    raise AssertionError(message)


def by_kernel(
    values: Tensor, limits: Limits, locate: bool, rows: DeviceRows | None = None, moments: bool = False
) -> Stats:
    """What the kernel finds; raises where torch had to stand in for it."""
    rows = rows or DeviceRows(_fail)
    rows.queue(values, limits, locate, moments)
    sealed = rows.seal()
    assert sealed is not None
    return sealed.stats()[0]


def by_torch(values: Tensor, limits: Limits, locate: bool, moments: bool = False) -> Stats:
    return read_rows([(values.numel(), reduce_later(values, limits, locate, moments))])[0]


def same(one: Stats, other: Stats) -> bool:
    return _plain(one) == _plain(other)


def _plain(stats: Stats) -> Any:
    place = stats.location
    if place is None or place.value is None or not math.isnan(place.value):
        return stats
    return stats._replace(location=place._replace(value="NaN"))  # type: ignore[arg-type]


def _agree_on(dtype: torch.dtype) -> str:
    rows, count = DeviceRows(_fail), 0
    generator = torch.Generator("cuda").manual_seed(1)
    for shape, bad in itertools.product(SHAPES, (0, 1, 40)):
        whole = _values(dtype, shape, bad, generator)
        for values in _layouts(whole) if dtype in STRIDED else [whole]:
            for limits, locate in itertools.product(LIMITS, (False, True)):
                found, expected = by_kernel(values, limits, locate, rows), by_torch(values, limits, locate)
                if not same(found, expected):
                    raise AssertionError(f"{shape} {values.stride()} {limits} {locate}: {found} is not {expected}")
                count += 1
    return f"{count} cases"


def _sums(dtype: torch.dtype) -> str:
    rows, count = DeviceRows(_fail), 0
    generator = torch.Generator("cuda").manual_seed(2)
    for shape, bad, size in itertools.product(SHAPES, (0, 40), (1.0, 1e30, 1e-39)):
        values = _values(dtype, shape, bad, generator)
        if size != 1.0 and dtype in (torch.float32, torch.bfloat16, torch.float64):
            values = values * size
        found, again = (by_kernel(values, Limits(), False, rows, True) for _ in range(2))
        expected = by_torch(values, Limits(), False, True)
        if not _close(found, expected) or found != again:
            raise AssertionError(f"{shape} times {size}: {found} or {again} is not {expected}")
        count += 1
    return f"{count} cases"


def _close(found: Stats, expected: Stats) -> bool:
    """All is the same but for the sums, which are nearly so."""
    one, other = found.moments, expected.moments
    if one is None or other is None or found._replace(moments=None) != expected._replace(moments=None):
        return False
    magnitudes = math.sqrt(expected.finite_count) * math.sqrt(other.squares)
    return (
        abs(one.total - other.total) <= SLACK * magnitudes and abs(one.squares - other.squares) <= SLACK * other.squares
    )


def _values(dtype: torch.dtype, shape: tuple[int, ...], bad: int, generator: torch.Generator) -> Tensor:
    numel = math.prod(shape)
    values = torch.empty(numel, device="cuda").normal_(generator=generator)
    values = (values * 20).to(dtype) if dtype in INTEGERS else values.to(dtype)
    if bad and dtype not in INTEGERS:
        places = torch.randint(numel, (bad,), device="cuda", generator=generator)
        kinds = torch.tensor([math.nan, math.inf, -math.inf, 1e5, -0.0], device="cuda").to(dtype)
        which = torch.randint(5, (bad,), device="cuda", generator=generator)
        values.view(torch.uint8 if dtype.itemsize == 1 else dtype)[places] = (
            kinds.view(torch.uint8)[which] if dtype.itemsize == 1 else kinds[which]
        )
    return values.reshape(shape)


def _layouts(values: Tensor) -> list[Tensor]:
    if values.dim() < 2:
        return [values, values[1:] if values.dim() and len(values) > 1 else values]
    views = [values, values.transpose(0, -1), values[..., ::2], values[:, : (values.shape[1] + 1) // 2]]
    if values.numel() < 10_000:
        views.append(values.expand(3, *values.shape))
    return views


def _together() -> str:
    rows = DeviceRows(_fail)
    tensors = [torch.randn(1 + 37 * number, device="cuda").to(FLOATS[number % 4]) for number in range(300)]
    tensors[17][3] = math.nan
    items = [(tensor, Limits(2.0)) for tensor in tensors]
    for locate, moments in ((False, False), (True, False), (False, True)):
        for _ in range(3):
            rows.queue_many(items, locate, moments)
            sealed = rows.seal()
            assert sealed is not None
            for found, tensor in zip(sealed.stats(), tensors, strict=True):
                expected = by_torch(tensor, Limits(2.0), locate, moments)
                assert _close(found, expected) if moments else same(found, expected), found
    return f"{len(items)} tensors"


def _repeatable() -> str:
    values = torch.randn(3001, 7013, device="cuda")
    values.view(-1)[::99_991] = math.inf
    rows = DeviceRows(_fail)
    for _ in range(300):
        rows.queue(values, Limits(4.0), True)
        rows.queue(values, Limits(4.0), True, True)
    sealed = rows.seal()
    assert sealed is not None
    found = sealed.stats()
    expected = by_torch(values, Limits(4.0), True, True)
    assert set(found[::2]) == {expected._replace(moments=None)}, set(found[::2])
    summed = set(found[1::2])  # to the last bit
    assert len(summed) == 1, summed
    assert _close(found[1], expected), found[1]
    return "300 runs of 1024 programs"


def _streams() -> str:
    rows = DeviceRows(_fail)
    streams = [torch.cuda.Stream() for _ in range(4)]
    tensors = [torch.full((1 << 22,), float(number), device="cuda") for number in range(64)]
    torch.cuda.synchronize()
    for step in range(20):
        for number, tensor in enumerate(tensors):
            with torch.cuda.stream(streams[number % 4]):
                tensor.add_(1)
                rows.queue(tensor, Limits(), False)
        sealed = rows.seal()
        assert sealed is not None
        found = [stats.finite_max for stats in sealed.stats()]
        assert found == [number + step + 1.0 for number in range(64)], found
    return "4 streams, 20 steps"


def _large() -> str:
    free, _ = torch.cuda.mem_get_info()
    seen = []
    for dtype in (torch.int8, torch.bfloat16):
        if LARGE * dtype.itemsize + 2**30 > free:
            continue
        values = torch.ones(LARGE, dtype=dtype, device="cuda")
        values[-2] = 100
        whole = by_kernel(values, Limits(50.0), True, moments=True)
        assert (whole.huge_count, whole.finite_max, whole.numel) == (1, 100.0, LARGE), whole
        assert whole.moments is not None
        assert abs(whole.moments.total / (LARGE + 99) - 1) < SLACK, whole
        assert abs(whole.moments.squares / (LARGE + 9999) - 1) < SLACK, whole
        assert whole.location is not None
        assert whole.location.flat_index == LARGE - 2, whole
        # Every other element, in rows: offsets beyond 31 bits.
        half = values[1:].view(-1, 4)[:, 1:3]
        found = by_kernel(half, Limits(50.0), True)
        assert found.location is not None
        rows, place = half.shape[0], LARGE - 3
        expected = 1 if place % 4 in (1, 2) else 0
        assert (found.huge_count, found.numel) == (expected, rows * 2), found
        seen.append(str(dtype).removeprefix("torch."))
        del values, half
        torch.cuda.empty_cache()
    return ", ".join(seen) if seen else "skipped, no memory for it"
