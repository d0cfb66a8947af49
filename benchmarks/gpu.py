"""On a GPU: a stack of transformer blocks of a billion parameters, in bfloat16, with the stock logger beside.

The share of the step, the speed at which the engine's kernels read against that of a copy, and how many kernels and
synchronisations a step has.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import torch
from torch import Tensor, nn

from benchmarks.alternate import BARE, Variant, alternate, bare
from benchmarks.estimate import Estimate
from benchmarks.models import Block, Trained
from benchmarks.row import Bar, Row
from benchmarks.sizes import Sizes
from benchmarks.stock import Stock
from benchmarks.variants import Ours

KEYS = ("gpu",)
_COPIED = 2**30  # bytes


class Load(NamedTuple):
    """What one step puts on the device, from the profiler.

    Attributes:
        kernels: Kernels, copies and fills.
        syncs: Calls that wait for the device.
        busy_s: Seconds that the kernels took, added up.
    """

    kernels: int
    syncs: int
    busy_s: float


def gpu_rows(sizes: Sizes, directory: Path) -> list[Row]:
    """Row `gpu`, thrice; nothing where there is no GPU."""
    if not torch.cuda.is_available():
        return []
    device = torch.device("cuda")
    trained = _blocks(sizes, device)

    def step() -> None:
        trained.step()
        torch.cuda.synchronize()

    ours, stock = Ours(directory / "gpu"), Stock(trained.model, directory / "stock_gpu")
    variants: dict[str, Variant] = {"ours": ours, "stock": stock}
    samples = alternate(step, variants, seconds=sizes.gpu_seconds, clock=time.perf_counter, timed=5)
    loads = {name: load_of(trained.step, variant) for name, variant in {BARE: bare, **variants}.items()}
    looked_at = bytes_looked_at(trained.step, directory / "gpu_count")
    copied = copy_bandwidth(device)
    parameters = sum(parameter.numel() for parameter in trained.model.parameters())
    title = f"{torch.cuda.get_device_name()}, {parameters / 1e9:.2g}B parameters in bfloat16"
    numbers: dict[str, float | str] = {
        "bare ms": 1e3 * samples.median(BARE),
        "ours added ms": 1e3 * samples.added("ours", BARE).value,
        "stock / bare": samples.ratio("stock", BARE).value,
        "from": samples.told,
    }
    rows = [Row("gpu", f"{title}: armed / bare", samples.ratio("ours", BARE), Bar(1.04), numbers)]
    read = {name: looked_at / max(loads[name].busy_s - loads[BARE].busy_s, 1e-9) for name in variants}
    numbers = {
        "GB looked at in a step": looked_at / 1e9,
        "ours GB/s": read["ours"] / 1e9,
        "stock GB/s": read["stock"] / 1e9,
        "copy GB/s, read and written": copied / 1e9,
    }
    rows.append(Row("gpu", "bytes read per second / copy bandwidth", _exact(read["ours"] / copied), None, numbers))
    numbers = {f"{name} kernels": load.kernels for name, load in loads.items()}
    numbers |= {f"{name} synchronisations": load.syncs for name, load in loads.items()}
    more = loads["ours"].syncs - loads[BARE].syncs
    rows.append(Row("gpu", "synchronisations added to a step", _exact(more), Bar(0), numbers))
    return rows


def _exact(value: float) -> Estimate:
    return Estimate(value, value, value)


def _blocks(sizes: Sizes, device: torch.device) -> Trained:
    torch.manual_seed(0)
    with device:
        model = nn.Sequential(*[Block(sizes.gpu_width) for _ in range(sizes.gpu_layers)]).to(torch.bfloat16)
        inputs = torch.randn(4, 1024, sizes.gpu_width, dtype=torch.bfloat16)
    return Trained(model, inputs, lr=1e-4)


def load_of(step: Callable[[], None], variant: Variant, steps: int = 4) -> Load:
    """Profile some steps and divide by their number; all that was enqueued is waited for at the end, outside."""
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with contextlib.ExitStack() as stack:
        stack.enter_context(variant())
        step()
        step()
        _wait()
        with torch.profiler.profile(activities=activities) as profile:
            for _ in range(steps):
                step()
        _wait()
    events: list[Any] = list(profile.events() or [])
    on_device = [event for event in events if event.device_type == torch.autograd.DeviceType.CUDA]
    # The profiler itself waits for the device once as it stops.
    waits = sum(event.name.endswith("Synchronize") for event in events) - any(
        event.name.endswith("DeviceSynchronize") for event in events
    )
    busy_us = sum(event.time_range.elapsed_us() for event in on_device)
    return Load(len(on_device) // steps, max(0, waits) // steps, 1e-6 * busy_us / steps)


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def bytes_looked_at(step: Callable[[], None], directory: Path) -> int:
    """Bytes of all tensors that the engine looks at in a step, from its records."""
    with Ours(directory, {"NANLOG_SAMPLE_EVERY": "1"})():
        step()
    total = 0
    with (directory / "layers_rank0.jsonl").open("rb") as lines:
        for line in lines:
            record = orjson.loads(line)
            total += record["numel"] * getattr(torch, record["dtype"].removeprefix("torch.")).itemsize
    return total


def copy_bandwidth(device: torch.device, size: int = _COPIED) -> float:
    """Bytes per second, read and written ones together, of a copy from a tensor to another; the median of ten."""
    source = torch.zeros(size, dtype=torch.uint8, device=device)
    target: Tensor = torch.empty_like(source)
    times = []
    for _ in range(10):
        _wait()
        start = time.perf_counter()
        target.copy_(source)
        _wait()
        times.append(time.perf_counter() - start)
    return 2 * size / statistics.median(times)
