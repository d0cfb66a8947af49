"""Statistics of what each layer gives out, and of the gradients of that (`trace: layer`).

In host memory a tensor is read at once. On a device the numbers are queued there, and come over when the step is over:
their lines are written with the next one. Nothing waits for a device, except with `on_bad: stop`, for each layer.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Container, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from aorta_collectors.numerics.brick import Brick
from aorta_collectors.numerics.config import Config
from aorta_collectors.numerics.layers.layer_call import LayerCall, is_mask
from aorta_collectors.numerics.layers.layer_reading import LayerReading
from aorta_collectors.numerics.layers.payload import Payload
from aorta_collectors.numerics.layers.recent import Recent
from aorta_collectors.numerics.layers.saturation import ends_of_module
from aorta_collectors.numerics.layers.stop import StopTheLine
from aorta_collectors.numerics.part import Part, StepTrace
from aorta_collectors.numerics.spans.span import BACKWARD, FORWARD
from aorta_collectors.observe.device.rows import accelerator
from aorta_collectors.observe.device.streams import Device
from aorta_collectors.observe.host_stats import HostStats
from aorta_collectors.observe.makers import computed_infinity
from aorta_collectors.observe.modes import in_any_mode, out_of_modes
from aorta_collectors.observe.stats_rows import SealedStats, StatsRows
from aorta_collectors.observe.tensor_stats import (
    NOTHING,
    Ends,
    TensorStats,
    decoded,
    ends_of,
    stats_later,
    values_of,
)
from aorta_collectors.observe.tensors import tensors_of
from aorta_collectors.observe.trace import in_backward

_NAMES = 20  # of layers whose tensors were passed over, for each reason
# Steps whose numbers have not arrived: normally one, since they are read a step late.
_MOST_WAITING = 2
_MOST_KNOWN = 20_000  # modules
_LAST_WAIT_S = 10.0
# A key-value cache is what a model remembers, not what it gives out, and grows with every token.
_STATE = re.compile(r"past_key_values|cache", re.IGNORECASE)


class _Seen(NamedTuple):
    """A reading whose statistics may be a row on a device."""

    reading: LayerReading
    row: int | None


class _Past(NamedTuple):
    step: int
    seen: list[_Seen]
    rows: SealedStats | None


class LayerStats(Part):
    """The part. Reads modules without parts, named steps and roots, unless the `steps` filter leaves them out.

    Args:
        warn: Told where not all tensors of an output are read.
        payload: Gets each tensor that is read, with trace: payload.
        device_of: Gives the streams and memory of a device, None for one without.
        host: Types of devices whose memory is the host's.
    """

    def __init__(
        self,
        config: Config,
        warn: Callable[[str], None],
        *,
        payload: Payload | None = None,
        device_of: Callable[[torch.device], Device | None] = accelerator,
        host: Container[str] = ("cpu",),
    ) -> None:
        self._warn = warn
        self._on_host = host
        self._payload = payload
        self._host = HostStats()
        self._rows = StatsRows(device_of)
        self._stop = StopTheLine(self._now) if config.stops else None
        self._step = 0
        self._calls: list[LayerCall] = []
        self._seen: list[_Seen] = []
        self._recent = Recent()
        self._waiting: deque[_Past] = deque()
        self._ends: dict[int, Ends | None] = {}
        self._paths: dict[int, tuple[str, ...]] = {}
        self._tensors_read = 0
        self._skipped: dict[str, tuple[int, list[str]]] = {}
        self._first_bad: dict[str, Any] | None = None
        self._is_cut = False

    # -- what the engine tells

    def wants(self, brick: Brick) -> bool:
        return brick.selected and (brick.is_leaf or brick.is_root or brick.is_named or bool(brick.step_name))

    def step_began(self, step: int) -> None:
        self._step = step
        self._calls.clear()

    def entered(self, brick: Brick, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None) -> None:
        call = LayerCall(brick, args, kwargs)
        self._calls.append(call)
        if self._stop is not None:
            self._stop.entered(call)

    def left(self, brick: Brick, args: tuple[Any, ...], result: Any) -> None:
        call = self._ended(brick)
        if in_backward():
            return  # activation checkpointing runs it again
        if type(result) is Tensor:
            self._paths[brick.number] = ("",)
            self._read(brick, FORWARD, "", result, call)
            return
        tensors = tensors_of(result, cut=self._cut)
        self._paths[brick.number] = tuple(path for path, tensor in tensors if tensor.is_floating_point())
        for path, tensor in tensors:
            if _STATE.search(path):
                self._pass_over(brick, "key-value cache")
            else:
                self._read(brick, FORWARD, path, tensor, call)

    def gradient(self, brick: Brick, index: int, grad: Tensor) -> None:
        paths = self._paths.get(brick.number, ("",))
        path = paths[index] if index < len(paths) else f"[{index}]"
        if not _STATE.search(path):
            self._read(brick, BACKWARD, path, grad, None)

    def loss_scaled(self, outputs: Any) -> None:
        if self._stop is not None:
            self._stop.loss_scaled()

    def step_ended(self, trace: StepTrace) -> None:
        seen, self._seen = self._seen, []
        self._calls.clear()
        self._recent.clear()
        if len(self._paths) > _MOST_KNOWN:  # of ever new models; they are found anew where they are needed
            self._paths.clear()
            self._ends.clear()
        rows = self._rows.seal()
        if seen:
            self._waiting.append(_Past(trace.step, seen, rows))
        until = time.monotonic() + _LAST_WAIT_S if trace.is_last else 0.0
        while self._waiting and self._has_arrived(self._waiting[0].rows, until):
            self._write(self._waiting.popleft(), trace)
        if trace.is_last:
            for past in self._waiting:
                for each in past.seen:
                    self._pass_over(each.reading.brick, "never arrived from the device")
            self._waiting.clear()
        if self._stop is not None:
            self._stop.step_ended()

    def fields(self) -> Mapping[str, Any]:
        return {
            "tensors_read": self._tensors_read,
            "tensors_skipped": {
                reason: {"count": count, "layers": layers} for reason, (count, layers) in self._skipped.items()
            },
            "first_bad": self._first_bad,
            "stopped": self._stop.stopped if self._stop is not None else None,
        }

    # -- reading

    def _read(self, brick: Brick, direction: str, path: str, tensor: Tensor, call: LayerCall | None) -> None:
        if in_any_mode():
            # The program's modes are not to see what is asked of its tensor here, nor to answer it.
            out_of_modes(self._look, brick, direction, path, tensor, call)
        else:
            self._look(brick, direction, path, tensor, call)

    def _look(self, brick: Brick, direction: str, path: str, tensor: Tensor, call: LayerCall | None) -> None:
        values, reason = values_of(tensor)
        if values is None and reason != "empty":
            self._pass_over(brick, reason)
            return
        ends = (self._ends_of(brick) if direction == FORWARD else None) or ends_of(tensor.dtype)
        row = None
        known = self._recent.find(tensor, ends)
        if known is not None:
            stats, row = known
        elif values is None:
            stats = NOTHING
        elif values.device.type in self._on_host:
            stats = self._host.read(values, ends)
        elif self._stop is not None:
            stats = decoded(values.numel(), stats_later(values, ends).tolist())
        else:
            stats, row = NOTHING, self._rows.queue(values, ends)
            if row is None:
                self._pass_over(brick, "in a CUDA graph")
                return
        if known is None:
            self._recent.add(tensor, ends, stats, row)
        masked = False
        if direction == FORWARD:
            if row is not None:
                # When -Inf are known of, the tensor is gone. What autograd cannot tell is taken for a mask.
                masked = computed_infinity(tensor) is not True
            elif stats.only_negative_infinite:
                masked = is_mask(tensor, stats, call, self._now)
        shape = tuple(tensor.shape) if values is None or not tensor.is_nested else tuple(values.shape)
        reading = LayerReading(brick, direction, path, tensor.dtype, shape, stats, masked)
        self._tensors_read += 1
        self._seen.append(_Seen(reading, row))
        if self._payload is not None:
            self._payload.keep(brick.layer, direction, path, tensor, values, len(self._seen) - 1)
        if row is None and reading.is_bad:
            self._note_bad(reading.line(self._step, len(self._seen) - 1))
        if self._stop is not None:
            self._stop.look(reading, tensor, call, self._step)

    def _now(self, tensor: Tensor) -> TensorStats | None:
        """The statistics of any tensor at once, waiting where it has to; None where there are none."""
        values, _ = values_of(tensor)
        if values is None:
            return None
        ends = ends_of(tensor.dtype)
        return (
            self._host.read(values, ends)
            if values.is_cpu
            else decoded(values.numel(), stats_later(values, ends).tolist())
        )

    def _ended(self, brick: Brick) -> LayerCall | None:
        """The innermost call of a module that is going on; those inside of it have ended by an exception."""
        for place in range(len(self._calls) - 1, -1, -1):
            if self._calls[place].brick is brick:
                call = self._calls[place]
                del self._calls[place:]
                return call
        return None

    def _ends_of(self, brick: Brick) -> Ends | None:
        if brick.number not in self._ends:
            self._ends[brick.number] = ends_of_module(brick.module())
        return self._ends[brick.number]

    def _pass_over(self, brick: Brick, reason: str) -> None:
        count, layers = self._skipped.get(reason, (0, []))
        if len(layers) < _NAMES and brick.layer not in layers:
            layers.append(brick.layer)
        self._skipped[reason] = (count + 1, layers)

    def _cut(self, most: int) -> None:
        if not self._is_cut:
            self._is_cut = True
            self._warn(f"of an output with more than {most} tensors the others are not read")

    def _note_bad(self, line: dict[str, Any]) -> None:
        first = self._first_bad  # what comes from a device is known later, and may have been earlier
        if first is None or (line["step"], line["seq"]) < (first["step"], first["seq"]):
            self._first_bad = line

    # -- lines

    def _has_arrived(self, rows: SealedStats | None, until: float) -> bool:
        """Whether a step can be written; the oldest of several is waited for, however long it takes."""
        while rows is not None and not rows.is_ready():
            if len(self._waiting) > _MOST_WAITING:
                return not self._rows.is_capturing
            if time.monotonic() >= until:
                return False
            time.sleep(0.001)
        return True

    def _write(self, past: _Past, trace: StepTrace) -> None:
        arrived = past.rows.stats() if past.rows is not None else []
        for seq, (reading, row) in enumerate(past.seen):
            known = reading if row is None else reading._replace(stats=arrived[row])
            line = known.line(past.step, seq)
            if known.is_bad:
                trace.bad_steps.add(past.step)
                if row is not None:
                    self._note_bad(line)
            trace.stats.append(line)
