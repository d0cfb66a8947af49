"""What the engine adds to the training step of a large model, alternating with bare steps; the stock logger beside."""

from __future__ import annotations

import contextlib
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import torch

from tests.gpu.models import DEFAULT, LINEARS, armed, stack, training_step

_BAR = 1.04
_ROUNDS = 6
_STEPS = 8  # in a row


class Load(NamedTuple):
    """What a step puts on the device and the host.

    Attributes:
        kernels, copies: On the device.
        waits: Calls of the host that wait for the device.
        busy_s: Seconds that kernels ran, added up.
    """

    kernels: float
    copies: float
    waits: float
    busy_s: float


def run(report: Any, options: Any) -> None:
    with tempfile.TemporaryDirectory() as directory:
        report.check("cost of a step", lambda: _cost(report, options, Path(directory)))


def _cost(report: Any, options: Any, directory: Path) -> str:
    model = stack(options.layers, options.width)
    inputs = torch.randn(4, 1024, options.width, device="cuda", dtype=torch.bfloat16)
    step = training_step(model, inputs)
    variants: dict[str, Callable[[], AbstractContextManager[Any]]] = {
        "bare": contextlib.nullcontext,
        "ours": lambda: armed(DEFAULT, keep=False),
        "ours, all channels": lambda: armed(LINEARS, keep=False),
        "ours, origin": lambda: armed(LINEARS, keep=False, origin=True),
    }
    stock = _stock(model, directory)
    if stock is not None:
        variants["stock"] = stock
    times: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(_ROUNDS):
        for name, variant in variants.items():
            with variant():
                times[name] += _times(step)
    bare = statistics.median(times["bare"])
    parameters = sum(parameter.numel() for parameter in model.parameters())
    report.measured(f"step of {parameters / 1e9:.2f}B parameters, bare", f"{1e3 * bare:.1f} ms")
    loads = {name: _load(step, variant) for name, variant in variants.items()}
    for name in variants:
        ratio, load = statistics.median(times[name]) / bare, loads[name]
        report.measured(
            f"  {name}",
            f"{ratio:.3f} of bare; a step has {load.kernels:.0f} kernels, {load.copies:.0f} copies, "
            f"{load.waits:.1f} waits, {1e3 * load.busy_s:.1f} ms of kernels",
        )
    looked_at = _bytes_looked_at(step)
    added = max(loads["ours"].busy_s - loads["bare"].busy_s, 1e-9)
    report.measured("  bytes looked at, default", f"{looked_at / 1e9:.2f} GB, {looked_at / added / 1e9:.0f} GB/s")
    more = loads["ours"].waits - loads["bare"].waits
    assert more < 0.5, f"{more:.1f} more waits in a step"
    ratio = statistics.median(times["ours"]) / bare
    assert ratio <= _BAR, f"{ratio:.3f} of the bare step, more than {_BAR}"
    return f"{ratio:.3f} of the bare step"


def _times(step: Callable[[], Any]) -> list[float]:
    step()
    step()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(_STEPS):
        step()
    torch.cuda.synchronize()
    return [(time.perf_counter() - start) / _STEPS]


def _load(step: Callable[[], Any], variant: Callable[[], AbstractContextManager[Any]], steps: int = 4) -> Load:
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with variant():
        step()
        step()
        torch.cuda.synchronize()
        with torch.profiler.profile(activities=activities) as profile:
            for _ in range(steps):
                step()
    events: list[Any] = list(profile.events() or [])
    on_device = [event for event in events if event.device_type == torch.autograd.DeviceType.CUDA]  # type: ignore[attr-defined]
    copies = sum(event.name.startswith(("Memcpy", "Memset")) for event in on_device)
    # The profiler itself waits for the device as it stops.
    waits = sum(event.name.endswith(("StreamSynchronize", "EventSynchronize")) for event in events)
    busy = sum(event.time_range.elapsed_us() for event in on_device)
    return Load((len(on_device) - copies) / steps, copies / steps, waits / steps, 1e-6 * busy / steps)


def _bytes_looked_at(step: Callable[[], Any]) -> int:
    with armed(DEFAULT) as sink:
        step()
        torch.cuda.synchronize()
    return sum(each.numel * each.dtype.itemsize for seen in sink.seen.values() for each in seen)


def _stock(model: torch.nn.Module, directory: Path) -> Callable[[], AbstractContextManager[Any]] | None:
    """The stock logger with its defaults on `model`, None where it isn't installed."""
    try:
        from benchmarks.stock import Stock
    except ImportError:
        return None
    return Stock(model, directory)
