"""Statistics of tensors against exact and float64 references, at once in host memory and queued as on a device."""

from __future__ import annotations

import math
import threading
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from aorta_collectors.observe.host_stats import HostStats
from aorta_collectors.observe.stats_rows import StatsRows
from aorta_collectors.observe.tensor_stats import (
    NOTHING,
    Ends,
    TensorStats,
    decoded,
    ends_of,
    stats_later,
    values_of,
)
from tests.observe.device.fakes import FakeDevice
from tests.observe.numbers import DTYPES, cases, elements

#: What is promised of mean (of the root mean square) and standard deviation (of itself).
SLACK = 1e-6
LARGE = 50_000  # elements: beyond what is read in float64


def now(tensor: Tensor, ends: Ends | None = None) -> TensorStats:
    values, reason = values_of(tensor)
    assert values is not None, reason
    return HostStats().read(values, ends)


def later(tensor: Tensor, ends: Ends | None = None) -> TensorStats:
    values, reason = values_of(tensor)
    assert values is not None, reason
    return decoded(values.numel(), stats_later(values, ends).tolist())


def exact(values: list[Any], ends: Ends | None) -> TensorStats:
    """Of exact Python numbers, as float64 has them."""
    found = [float(value) for value in values]
    finite = [value for value in found if math.isfinite(value)]
    counts = (
        len(found),
        sum(map(math.isnan, found)),
        sum(map(math.isinf, found)),
        found.count(math.inf),
        sum(value == 0.0 for value in found),
        0 if ends is None else sum(value <= ends.low for value in found) + sum(value >= ends.high for value in found),
    )
    if not finite:
        return TensorStats(*counts, None, None, None, None)
    scale = Fraction(max(abs(value) for value in finite)) or Fraction(1)
    mean = sum(map(Fraction, finite), Fraction()) / len(finite)
    variance = sum(((Fraction(value) - mean) / scale) ** 2 for value in finite) / len(finite)
    return TensorStats(*counts, min(finite), max(finite), float(mean), math.sqrt(variance) * float(scale))


def is_close(found: TensorStats, expected: TensorStats, least: float = 5e-324) -> bool:
    """`least`: what a standard deviation may be lost below."""
    if found[:8] != expected[:8] or (found.mean is None) != (expected.mean is None):
        return False
    if expected.mean is None or expected.std is None:
        return found.std is None
    assert found.mean is not None
    assert found.std is not None
    rms = math.hypot(expected.mean, expected.std)
    return (
        abs(found.mean - expected.mean) <= SLACK * rms + least
        and abs(found.std - expected.std) <= SLACK * expected.std + least
    )


def by_numpy(tensor: Tensor, ends: Ends | None = None) -> TensorStats:
    """Of many elements, in float64."""
    values = tensor.detach().double().numpy().reshape(-1)
    finite = values[np.isfinite(values)]
    low, high = (-math.inf, math.inf) if ends is None else ends
    saturated = 0 if ends is None else int(np.sum(values <= low) + np.sum(values >= high))
    counts = (
        values.size,
        int(np.isnan(values).sum()),
        int(np.isinf(values).sum()),
        int(np.isposinf(values).sum()),
        int((values == 0).sum()),
        saturated,
    )
    if not finite.size:
        return TensorStats(*counts, None, None, None, None)
    return TensorStats(*counts, *(float(each) for each in (finite.min(), finite.max(), finite.mean(), finite.std())))


class TestEveryDtype:
    @settings(max_examples=25, deadline=None)
    @given(data=st.data())
    @pytest.mark.parametrize("dtype", DTYPES, ids=str)
    def test_equal_an_exact_reference(self, dtype: torch.dtype, data: st.DataObject) -> None:
        tensor, limits = data.draw(cases(dtype))
        ends = Ends(-limits.huge, limits.huge) if math.isfinite(limits.huge) else None
        if tensor.numel() == 0:
            return
        expected = exact(elements(tensor), ends)
        assert is_close(now(tensor, ends), expected)
        queued = later(tensor, ends)
        if expected.finite_abs_max is not None and expected.finite_abs_max > 1e150:
            assert queued[:8] == expected[:8]  # their sums are beyond float64, and then nothing is said of them
        else:
            assert is_close(queued, expected, least=1e-150)


def _large_cases() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    normal = torch.randn(LARGE, generator=generator)
    mixed = normal.clone()
    mixed[::100], mixed[7], mixed[9] = math.nan, math.inf, -math.inf
    return {
        "normal": normal,
        "two pieces and a rest": torch.randn((1 << 20) + 77, generator=generator),
        "constant": torch.full((LARGE,), 0.1),
        "far from zero": normal + 1e6,
        "far from zero, with one outlier": torch.cat([normal * 0.01 + 1e4, torch.tensor([-1.0])]),
        "almost constant": torch.full((LARGE,), 0.1) + (normal > 2) * 1e-7,
        "two values": torch.where(normal > 0, 0.1, -0.1),
        "two values of one sign": torch.where(normal > 0, 0.0999, 1e-3),
        "relu": normal.relu(),
        "nothing but zeros": torch.zeros(LARGE),
        "negative zeros": torch.where(normal > 0, -0.0, normal),
        "subnormal": normal * 1e-40,
        "tiny": normal * 1e-25,
        "huge": normal * 1e30,
        "both": torch.where(normal > 0, normal * 1e-30, normal * 1e30),
        "NaN and Inf": mixed,
        "nothing finite": torch.full((LARGE,), math.nan),
        "half": normal.half(),
        "bfloat16": (normal + 300).bfloat16(),
        "float64": normal.double() * 1e200,
        "int64": (normal * 1e6).long(),
        "transposed": normal.view(200, 250).t(),
        "permuted": normal.view(10, 50, 100).permute(2, 0, 1),
        "strided": normal.repeat(3).view(-1, 3)[:, 1],
        "strided in two pieces": torch.randn(3, (1 << 19) + 5, 2, generator=generator)[:, :, 1],
        "expanded": normal[:500].view(1, 500).expand(100, 500),
        "0-dim expanded": torch.tensor(0.3).expand(LARGE),
    }


LARGE_CASES = _large_cases()


class TestManyElements:
    @pytest.mark.parametrize("name", LARGE_CASES)
    def test_equal_a_float64_reference(self, name: str) -> None:
        tensor = LARGE_CASES[name]
        expected = by_numpy(tensor, ends_of(tensor.dtype)) if name != "float64" else None
        if expected is None:
            shrunk = by_numpy(tensor / 1e200)  # numpy's squares would run over
            assert shrunk.mean is not None
            assert shrunk.std is not None
            found = now(tensor)
            assert found.mean == pytest.approx(shrunk.mean * 1e200, rel=1e-6)
            assert found.std == pytest.approx(shrunk.std * 1e200, rel=1e-6)
            return
        slack = 1e-45 if name == "subnormal" else 0.0
        assert is_close(now(tensor, ends_of(tensor.dtype)), expected, least=slack)
        assert is_close(later(tensor, ends_of(tensor.dtype)), expected, least=slack)

    def test_a_constant_has_no_spread_at_all(self) -> None:
        for tensor in (torch.full((LARGE,), 0.1), torch.full((7,), 1e300, dtype=torch.float64)):
            for stats in (now(tensor), later(tensor)):
                assert (stats.std, stats.mean) == (0.0, stats.finite_max)

    def test_a_long_sum_does_not_drift(self) -> None:
        many = torch.where(torch.rand(1 << 24) > 0.3, 0.1, 0.3)
        assert is_close(now(many), by_numpy(many))

    def test_elements_at_the_ends_are_saturated(self) -> None:
        values = torch.linspace(-1, 1, LARGE)
        ends = Ends(-0.75, 0.9)
        assert now(values, ends) == pytest.approx(by_numpy(values, ends), rel=1e-6, abs=1e-6)
        assert now(values, ends).saturated_fraction == pytest.approx(0.125 + 0.05, abs=1e-4)
        top = torch.finfo(torch.float16).max
        half = torch.cat([torch.zeros(LARGE), torch.full((LARGE,), top)]).half()
        assert now(half, ends_of(torch.float16)).saturated_fraction == 0.5
        assert now(half, ends_of(torch.float16)).zero_fraction == 0.5


class TestEnds:
    def test_are_those_of_the_dtype(self) -> None:
        assert ends_of(torch.bool) is None
        assert ends_of(torch.uint8) == (-math.inf, 255.0)
        assert ends_of(torch.int8) == (-128.0, 127.0)
        assert ends_of(torch.complex64) == ends_of(torch.float32)
        assert ends_of(torch.float8_e4m3fn) == (-448.0, 448.0)


class TestReading:
    def test_nothing_is_left_behind(self) -> None:
        weight = torch.randn(LARGE, requires_grad=True)
        tensor = weight * 2
        before, state, version = tensor.detach().clone(), torch.get_rng_state(), tensor._version
        now(tensor, Ends(-1.0, 1.0))
        later(tensor, Ends(-1.0, 1.0))
        assert torch.equal(tensor.detach(), before)
        assert (tensor._version, weight.grad) == (version, None)
        assert torch.equal(torch.get_rng_state(), state)

    def test_in_inference_mode_and_out_of_it_again(self) -> None:
        reader = HostStats()
        with torch.inference_mode():
            inside = reader.read(torch.ones(LARGE), None)
        assert inside == reader.read(torch.ones(LARGE), None)
        assert reader.read(torch.randn(LARGE), None).numel == LARGE

    def test_several_threads_do_not_share_buffers(self) -> None:
        reader = HostStats()
        tensors = [torch.randn(LARGE).half() + number for number in range(4)]
        wrong: list[int] = []

        def read(number: int) -> None:
            for _ in range(20):
                if not is_close(reader.read(tensors[number], None), by_numpy(tensors[number])):
                    wrong.append(number)

        threads = [threading.Thread(target=read, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []

    def test_of_nothing_there_is_nothing(self) -> None:
        assert values_of(torch.empty(0, 3))[1] == "empty"
        assert (NOTHING.mean, NOTHING.zero_fraction, NOTHING.saturated_fraction) == (None, None, None)


class TestStatsRows:
    def test_come_a_step_later_and_nothing_waits(self) -> None:
        device = FakeDevice()
        rows = StatsRows(lambda _: device)  # type: ignore[arg-type,return-value]
        tensors = [torch.randn(5) * number for number in range(1, 4)]
        with device.no_waiting():
            assert [rows.queue(tensor, None) for tensor in tensors[:2]] == [0, 1]
            first = rows.seal()
            assert first is not None
            assert not first.is_ready()
            assert rows.queue(tensors[2], Ends(-0.5, 0.5)) == 0
            second = rows.seal()
            assert second is not None
            device.advance()
            assert first.is_ready()
            assert first.stats() == [later(tensor) for tensor in tensors[:2]]
            assert second.stats() == [later(tensors[2], Ends(-0.5, 0.5))]
        assert rows.seal() is None

    def test_nothing_is_queued_into_a_graph(self) -> None:
        device = FakeDevice()
        rows = StatsRows(lambda _: device)  # type: ignore[arg-type,return-value]
        rows.queue(torch.ones(3), None)
        sealed = rows.seal()
        assert sealed is not None
        device.capturing = True
        assert rows.queue(torch.ones(3), None) is None
        assert rows.is_capturing
        assert not sealed.is_ready()
        device.capturing = False
        device.advance()
        assert sealed.stats() == [later(torch.ones(3))]

    def test_a_device_without_streams_is_read_when_asked(self) -> None:
        rows = StatsRows(lambda _: None)
        assert rows.queue(torch.tensor([1.0, 2.0]), None) == 0
        sealed = rows.seal()
        assert sealed is not None
        assert sealed.is_ready()
        assert sealed.stats()[0].mean == 1.5
