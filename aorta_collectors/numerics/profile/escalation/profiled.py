"""One step under torch's profiler, and what ran in it.

It is started and stopped between two steps, on the main thread. Only the thread that has started it can stop it, and
torch crashes at the end of a process in which it still runs, or whose thread is gone. Where there is a device, stopping
it waits for that once; apart from this no operation is changed, and no random number is drawn.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from time import perf_counter_ns
from typing import Any, NamedTuple

import torch
from torch._C._autograd import DeviceType
from torch.autograd import profiler

from aorta_collectors.numerics.engine.told import OBSERVING
from aorta_collectors.numerics.profile.escalation.ranges import Ranges
from aorta_collectors.numerics.profile.escalation.sources import Unavailable

_MARK = "aorta_collectors: clock"
_NUM_MARKS = 3
# Of the profiler's library; above all that it has to say. Else it tells stderr of each beginning and end (torch 2.13).
_QUIET_VARIABLE, _QUIET = "KINETO_LOG_LEVEL", "6"
# By these a tool is loaded that takes the device's only place for a profiler: of CUDA, and of ROCm.
_TOOL_VARIABLES = ("CUDA_INJECTION64_PATH", "NSYS_PROFILING_SESSION_ID", "ROCP_TOOL_LIBRARIES", "HSA_TOOLS_LIB")
_LAUNCHES = ("LaunchKernel", "LaunchCooperativeKernel", "GraphLaunch")


class Operation(NamedTuple):
    """What the profiler saw: an operation of torch, a call of the device's runtime, or a kernel on the device.

    Attributes:
        start_ns, end_ns: time.perf_counter_ns().
        at_ns: When the host came by it: of a kernel, when it was launched.
        self_us: Microseconds on the host without what it called; 0 of a kernel.
        device_us: Microseconds of the kernels that it launched, or of the kernel; None where there is no device.
    """

    name: str
    start_ns: int
    end_ns: int
    at_ns: int
    self_us: float
    device_us: float | None
    is_kernel: bool

    @property
    def is_launch(self) -> bool:
        """Whether it launches something on a device: cudaLaunchKernel, hipModuleLaunchKernel and their kind."""
        return self.name.startswith(("cu", "hip")) and any(part in self.name for part in _LAUNCHES)


class ProfiledStep:
    """Runs the profiler from `begin` to `end`.

    Attributes:
        remarks: What it cannot tell, one sentence each.
    """

    def __init__(self) -> None:
        self.remarks: list[str] = []
        self._running: Any = None
        self._ended: Any = None
        self._thread = 0
        self._marks: list[tuple[int, int]] = []

    @property
    def runs(self) -> bool:
        return self._running is not None

    @property
    def can_end(self) -> bool:
        """Whether this is the thread on which it can be stopped."""
        return threading.get_ident() == self._thread

    def begin(self) -> None:
        """Profile this thread from now on, and the backward passes that it starts.

        Raises:
            Unavailable: It could not be started.
        """
        if threading.current_thread() is not threading.main_thread():
            raise Unavailable("Kernels are told only of steps that the main thread runs.")
        running = _quietly_started(self._device())
        self._running, self._thread = running, threading.get_ident()
        for _ in range(_NUM_MARKS):
            before_ns = perf_counter_ns()
            with profiler.record_function(_MARK):
                self._marks.append((before_ns, perf_counter_ns()))

    def _device(self) -> str | None:
        """What to profile beside the host: "cuda", which ROCm goes by too, or None."""
        cuda: Any = torch.cuda
        if not cuda.is_available():
            return None
        if not cuda.is_initialized():
            # torch sets its profiler up once, with devices or without.
            raise Unavailable(
                "Kernels are not told before the program uses the device that is there: a profiler that began without "
                "it would keep the program's own from telling of it later."
            )
        if cuda.is_current_stream_capturing():
            raise Unavailable("A CUDA graph is being captured, which a profiler would disturb.")
        tool = next((name for name in _TOOL_VARIABLES if os.environ.get(name)), None)
        if tool is not None:
            self.remarks.append(f"Kernels on the device are not told: another profiler is there ({tool} is set).")
            return None
        return "cuda"

    def end(self) -> None:
        """Profile no longer. Does nothing where it does not run, or not on this thread: no other can stop it."""
        if self._running is None or not self.can_end:
            return
        running, self._running = self._running, None
        try:
            running.__exit__(None, None, None)
            self._ended = running
        except Exception as error:
            self.remarks.append(f"torch's profiler failed: {type(error).__name__}: {error}.")

    def operations(self) -> list[Operation]:
        """What was seen, in the order of their beginnings.

        Raises:
            Unavailable: It never came to its end.
        """
        if self._ended is None:
            raise Unavailable(
                self.remarks[-1] if self.remarks else "The step ended on another thread than it began on."
            )
        try:
            return _operations(list(self._ended.function_events), self._marks)
        except Exception as error:
            raise Unavailable(f"torch's profiler told nothing: {type(error).__name__}: {error}.") from error


def _quietly_started(device: str | None) -> Any:
    before = os.environ.get(_QUIET_VARIABLE)
    if before is None:
        os.environ[_QUIET_VARIABLE] = _QUIET
    try:
        running: Any = profiler.profile(use_device=device, use_kineto=True)
        running.__enter__()
    except Exception as error:
        raise Unavailable(f"torch's profiler could not be started: {type(error).__name__}: {error}.") from error
    finally:
        if before is None:
            os.environ.pop(_QUIET_VARIABLE, None)
    return running


def _operations(events: Sequence[Any], marks: Sequence[tuple[int, int]]) -> list[Operation]:
    offset_ns = _offset_ns([event.time_range.start for event in events if event.name == _MARK], marks)
    cpu = DeviceType.CPU
    ours = Ranges((event.time_range.start, event.time_range.end) for event in events if event.name == OBSERVING)
    has_device = any(event.device_type != cpu for event in events)
    launched_us = {event.id: event.time_range.start for event in events if event.kernels}
    found = []
    for event in events:
        is_kernel = event.device_type != cpu
        # What the program has named is told of the device, too.
        if event.name == _MARK or (is_kernel and getattr(event, "is_user_annotation", False)):
            continue
        start, end = event.time_range.start, event.time_range.end
        at = launched_us.get(getattr(event, "linked_correlation_id", 0), start) if is_kernel else start
        if at in ours:
            continue  # observing has operations too, which are not the program's
        if is_kernel:
            device_us: float | None = float(end - start)
        else:
            device_us = float(sum(kernel.duration for kernel in event.kernels)) if has_device else None
        self_us = 0.0 if is_kernel else max(0.0, float(event.self_cpu_time_total))
        start_ns, end_ns, at_ns = (int(micros * 1e3 + offset_ns) for micros in (start, end, at))
        found.append(Operation(event.name, start_ns, end_ns, at_ns, self_us, device_us, is_kernel))
    return found


def _offset_ns(seen_us: Sequence[float], marks: Sequence[tuple[int, int]]) -> float:
    """What is added to a time by the profiler's clock for one by ours.

    Each mark began between two looks at our clock, so the sum lies between them.
    """
    if len(seen_us) != len(marks):
        raise Unavailable("nothing of this thread was seen")
    pairs = list(zip(seen_us, marks, strict=True))
    low = max(before_ns - micros * 1e3 for micros, (before_ns, _) in pairs)
    high = min(after_ns - micros * 1e3 for micros, (_, after_ns) in pairs)
    return (low + high) / 2
