"""Measuring a device: what a matrix product, a copy and the smallest operation take at best.

Others may be at work on the machine, so the best of many repetitions counts, and how busy they were is told. Operands
are ones: no random number is drawn. The program's settings stay: its threads, and the precision that it lets float32
products have.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import torch

from aorta_collectors.numerics.profile.free_memory import free_bytes
from aorta_collectors.numerics.profile.others import Others

_WIDENING_S = 0.6  # for finding the best product of one dtype
_REPEAT_S = 1.6  # for repeating all that is measured
_TURN_S = 0.05
_LONG_S = 0.005  # of a product that is followed by a wider one only where it was much faster than the one before
_MUCH_FASTER = 1.5
_WIDTHS = (256, 512, 1024, 2048, 4096, 8192)
_COPIED = 256 << 20  # bytes of one buffer: larger than the caches of most devices
_LAUNCHES = 500
# The operands of a product, and the two buffers of a copy, take at most this part of the free memory.
_PART_OF_FREE = 1 / 8
_UNKNOWN_FREE = 1 << 30


@dataclass(frozen=True)
class Conditions:
    """What a measurement depends on.

    Attributes:
        name: Of the device.
        threads: Of torch on the host, as the program has set them.
        precision: That float32 products may have, as torch.set_float32_matmul_precision says.
    """

    device: torch.device
    name: str
    threads: int
    precision: str

    @classmethod
    def of(cls, device: torch.device) -> Conditions:
        return cls(device, _name_of(device), torch.get_num_threads(), _precision())

    @property
    def key(self) -> str:
        return f"{self.name}; torch {torch.__version__}; {self.threads} threads; {self.precision}"

    @property
    def is_capturing(self) -> bool:
        """Whether a CUDA graph is being captured."""
        return self.device.type == "cuda" and torch.cuda.is_current_stream_capturing()

    def dtypes(self, used: Iterable[torch.dtype]) -> list[str]:
        """Of which to know the peak: what the model computes in, and what it may under autocast."""
        wanted = {torch.float32, torch.bfloat16, *(dtype for dtype in used if dtype.is_floating_point)}
        if self.device.type != "cpu":
            wanted.add(torch.float16)
        if torch.is_autocast_enabled(self.device.type):
            wanted.add(torch.get_autocast_dtype(self.device.type))
        return sorted(str(dtype).removeprefix("torch.") for dtype in wanted if dtype.itemsize > 1)


class _Timed:
    """The best of several runs of a function.

    Args:
        amount: What one run does, in the unit of `rate`.

    Attributes:
        least_s: Seconds of the fastest.
    """

    def __init__(self, function: Callable[[], None], amount: float, device: torch.device) -> None:
        self._function = function
        self._amount = amount
        self._device = device
        self.least_s = math.inf
        self.again()

    @property
    def rate(self) -> float:
        """Amount a second."""
        return self._amount / self.least_s

    def again(self) -> None:
        _wait(self._device)
        began = time.perf_counter()
        self._function()
        _wait(self._device)
        self.least_s = min(self.least_s, time.perf_counter() - began)


def measured(conditions: Conditions, dtypes: Sequence[str], known: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The fields of a Roofline, none worse than what is known already; None where nothing can be measured."""
    device, others = conditions.device, Others()
    with _undisturbed(device):
        products: dict[str, _Timed] = {}
        for dtype in dtypes:
            # The device, or the program's settings, may not allow of it.
            with contextlib.suppress(RuntimeError):
                products[dtype] = _product(device, getattr(torch, dtype))
        try:
            copy, launch = _copy(device), _launch(device)
        except RuntimeError:
            return None
        _repeat([*products.values(), copy, launch])
    flops = {dtype: product.rate for dtype, product in products.items()}
    num_bytes, launches = copy.rate, launch.rate
    busy = others.cores() if device.type == "cpu" else 0.0
    if known is not None:
        flops = {
            **known["flops_per_s"],
            **{name: max(rate, known["flops_per_s"].get(name, 0.0)) for name, rate in flops.items()},
        }
        num_bytes, launches = max(num_bytes, known["bytes_per_s"]), max(launches, 1e6 / known["launch_us"])
        # What others have disturbed is better by now, if it was measured again.
        busy = (min if set(dtypes) >= set(known["flops_per_s"]) else max)(busy, known["busy_cores"])
    del products, copy, launch
    if device.type == "cuda":
        torch.cuda.empty_cache()
    if not flops:
        return None
    return {
        "device": conditions.name,
        "flops_per_s": flops,
        "bytes_per_s": num_bytes,
        "launch_us": 1e6 / launches,
        "threads": conditions.threads,
        "busy_cores": round(busy, 2),
        "measured_at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }


@contextlib.contextmanager
def _undisturbed(device: torch.device) -> Iterator[None]:
    """Without what the program may have on: gradients, inference mode, autocast."""
    with torch.inference_mode(False), torch.no_grad(), torch.autocast(device.type, enabled=False):
        yield


def _repeat(all_timed: Sequence[_Timed]) -> None:
    """In turn, so that what others do for a while spoils some runs of each, and not all of one."""
    until = time.perf_counter() + _REPEAT_S
    while time.perf_counter() < until:
        for timed in all_timed:
            turn = time.perf_counter() + _TURN_S
            while time.perf_counter() < turn:
                timed.again()


def _product(device: torch.device, dtype: torch.dtype) -> _Timed:
    """The square matrix product with most FLOPs a second.

    Wider ones fill a device better, until they are as fast as it gets, or take too long.
    """
    until, allowed = time.perf_counter() + _WIDENING_S, _allowed_bytes(device)
    best = last = _product_of(_WIDTHS[0], device, dtype)
    best.again()
    for width in _WIDTHS[1:]:
        if 3 * width * width * dtype.itemsize > allowed:
            break
        product = _product_of(width, device, dtype)
        product.again()
        is_enough = product.rate < _MUCH_FASTER * best.rate and product.least_s > _LONG_S
        best = max(best, product, key=lambda one: one.rate)
        # On a busy machine small ones take as long as larger ones: threads wait for one another.
        next_s = product.least_s * product.least_s / last.least_s
        last = product
        if is_enough or next_s > until - time.perf_counter():
            break
    return best


def _allowed_bytes(device: torch.device) -> int:
    free = free_bytes(device)
    return int((_UNKNOWN_FREE if free is None else free) * _PART_OF_FREE)


def _product_of(width: int, device: torch.device, dtype: torch.dtype) -> _Timed:
    left = torch.ones(width, width, dtype=dtype, device=device)
    right, out = torch.ones_like(left), torch.empty_like(left)

    def multiply() -> None:
        torch.mm(left, right, out=out)

    return _Timed(multiply, 2.0 * width**3, device)


def _copy(device: torch.device) -> _Timed:
    """Bytes, read and written, of a copy within the device's memory."""
    size = min(_COPIED, _allowed_bytes(device) // 2)
    source = torch.ones(max(1, size // 4), dtype=torch.float32, device=device)
    target = torch.ones_like(source)
    return _Timed(lambda: target.copy_(source), 2.0 * source.nbytes, device)  # type: ignore[arg-type]


def _launch(device: torch.device) -> _Timed:
    """The smallest operation as a model does it: its result is new, and autograd notes it down."""
    one = torch.ones(1, device=device, requires_grad=True)

    def launch() -> None:
        with torch.enable_grad():
            for _ in range(_LAUNCHES):
                one + one

    return _Timed(launch, _LAUNCHES, device)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _name_of(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    if device.type == "cpu":
        with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    return device.type


def _precision() -> str:
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:  # of a program that has set it by the newer names
        return str(getattr(torch.backends, "fp32_precision", ""))
