"""How fast the kernels read, against the device's own copy, and what a launch costs the host."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from aorta_collectors.observe.device.rows import DeviceRows
from aorta_collectors.observe.limits import Limits

MIB = 2**20
_LEAST = 0.5  # of the bandwidth of a copy, for large tensors that lie in one piece


def run(report: Any, options: Any) -> None:
    copied = copy_bandwidth()
    report.measured("copy, read and written", f"{copied / 1e9:.0f} GB/s")
    for dtype in (torch.float32, torch.bfloat16, torch.float64, torch.float8_e5m2):
        report.check(f"reads {dtype} at memory speed", lambda dtype=dtype: _read(report, dtype, copied))
    report.check("speed of other layouts and sizes", lambda: _others(report, copied))
    report.check("cost to the host", lambda: _host(report))


def copy_bandwidth(size: int = 1024 * MIB) -> float:
    """Bytes per second of a copy from one tensor to another, those read and those written together."""
    source = torch.zeros(size, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return 2 * size / _seconds(lambda: target.copy_(source))


def _seconds(run_once: Callable[[], Any], repeats: int = 20) -> float:
    """Time on the device: the median of several."""
    for _ in range(3):
        run_once()
    times = []
    for _ in range(repeats):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(200_000)  # so that the kernel is queued before it can begin
        begin.record()
        run_once()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 1e3)
    return statistics.median(times)


def _queue_seconds(values: Tensor, locate: bool = False, moments: bool = False) -> float:
    rows = DeviceRows()

    def once() -> None:
        rows.queue(values, Limits(), locate, moments)

    seconds = _seconds(once)
    sealed = rows.seal()
    assert sealed is not None
    sealed.stats()
    return seconds


def _read(report: Any, dtype: torch.dtype, copied: float) -> str:
    size = 1024 * MIB
    values = torch.ones(size // dtype.itemsize, device="cuda").to(dtype)
    ways = {"": (False, False), ", located": (True, False), ", summed": (False, True)}
    rates = {way: size / _queue_seconds(values, *wanted) for way, wanted in ways.items()}
    name = str(dtype).removeprefix("torch.")
    for way, rate in rates.items():
        report.measured(f"kernel, {name}{way}", f"{rate / 1e9:.0f} GB/s, {rate / copied:.2f} of the copy")
    if dtype.itemsize > 1:  # of one byte an element there is more to compute than to read
        assert rates[""] > _LEAST * copied, f"{rates[''] / 1e9:.0f} GB/s"
    return f"{rates[''] / 1e9:.0f} GB/s"


def _others(report: Any, copied: float) -> None:
    values = torch.ones(16384, 3 * 4096, device="cuda", dtype=torch.bfloat16)
    part = values[:, 4096:8192]
    rate = part.numel() * 2 / _queue_seconds(part)
    report.measured("kernel, every third part of a row", f"{rate / 1e9:.0f} GB/s, {rate / copied:.2f} of the copy")
    rate = values.numel() * 2 / _queue_seconds(values.t())
    report.measured("kernel, transposed", f"{rate / 1e9:.0f} GB/s, {rate / copied:.2f} of the copy")
    values[5, 6] = torch.nan
    rate = values.numel() * 2 / _queue_seconds(values, True)
    report.measured("kernel, one NaN, located", f"{rate / 1e9:.0f} GB/s, {rate / copied:.2f} of the copy")
    values.fill_(torch.nan)
    rate = values.numel() * 2 / _queue_seconds(values, True)
    report.measured("kernel, all NaN, located", f"{rate / 1e9:.0f} GB/s, {rate / copied:.2f} of the copy")
    for size in (1, 64, 1024, 16 * 1024):  # KiB
        small = torch.ones(size * 512, device="cuda", dtype=torch.bfloat16)
        report.measured(f"kernel, {size} KiB", f"{1e6 * _queue_seconds(small):.1f} us on the device")


def _host(report: Any) -> None:
    rows = DeviceRows()
    small = [torch.ones(1024, device="cuda") for _ in range(200)]
    items = [(values, Limits()) for values in small]

    def one_by_one() -> None:
        for values in small:
            rows.queue(values, Limits(), False)

    def together() -> None:
        rows.queue_many(items, False)

    for name, run_once in {"one by one": one_by_one, "together": together}.items():
        times = []
        for _ in range(12):
            torch.cuda.synchronize()
            start = time.perf_counter()
            run_once()
            times.append(time.perf_counter() - start)
            sealed = rows.seal()
            assert sealed is not None
            sealed.stats()
        each = statistics.median(times[2:]) / len(small)
        report.measured(f"host, a tensor, {name}", f"{1e6 * each:.1f} us")
