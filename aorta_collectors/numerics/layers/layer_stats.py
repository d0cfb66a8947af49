"""Statistics of what each layer gives out, and of the gradients of that (`trace: layer`).

They are taken in step 1 and each `stats_every`-th one after it. In the steps between, each tensor is only asked
whether all of it is finite, which one sum tells; what is not is read and written as in any other step. With `on_bad:
stop` it is asked for its largest magnitude, for the run-up.

In host memory a tensor is read at once. On a device the numbers are queued there, and come over when the step is over:
their lines are written with the next one. Nothing waits for a device, except with `on_bad: stop`, for each layer. What
is found on a device without waiting is found too late to read the tensor then: all steps' numbers are queued.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from aorta_collectors.numerics.brick import Brick
from aorta_collectors.numerics.config import Config
from aorta_collectors.numerics.layers.layer_call import LayerCall, is_mask
from aorta_collectors.numerics.layers.layer_reading import LayerReading
from aorta_collectors.numerics.layers.payload import Payload
from aorta_collectors.numerics.layers.recent import Recent
from aorta_collectors.numerics.layers.saturation import ends_of_module
from aorta_collectors.numerics.layers.stats_lines import Seen, StatsLines
from aorta_collectors.numerics.layers.stop import StopTheLine
from aorta_collectors.numerics.part import Part, StepTrace
from aorta_collectors.numerics.spans.span import BACKWARD, FORWARD
from aorta_collectors.observe.device.rows import accelerator
from aorta_collectors.observe.device.streams import Device
from aorta_collectors.observe.finite import FINITE, Finite, found_finite, found_finite_to
from aorta_collectors.observe.host_stats import HostStats
from aorta_collectors.observe.makers import computed_infinity
from aorta_collectors.observe.modes import in_any_mode, out_of_modes
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
from aorta_collectors.observe.tensors import tensors_of
from aorta_collectors.observe.trace import in_backward

_NAMES = 20  # of layers whose tensors were passed over, for each reason
_MOST_KNOWN = 20_000  # modules
# A key-value cache is what a model remembers, not what it gives out, and grows with every token.
_STATE = re.compile(r"past_key_values|cache", re.IGNORECASE)


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
        self._every = config.stats_every
        self._step = 0
        self._is_sampled = True
        self._looked_at = 0  # tensors of the step
        self._clean = 0
        self._calls: list[LayerCall] = []
        self._seen: list[Seen] = []
        self._recent = Recent()
        self._lines = StatsLines(self._rows, self._pass_over)
        self._ends: dict[int, Ends | None] = {}
        self._paths: dict[int, tuple[str, ...]] = {}
        self._skipped: dict[str, tuple[int, list[str]]] = {}
        self._is_cut = False

    # -- what the engine tells

    def wants(self, brick: Brick) -> bool:
        return brick.selected and (brick.is_leaf or brick.is_root or brick.is_named or bool(brick.step_name))

    def step_began(self, step: int) -> None:
        self._step = step
        self._is_sampled = (step - 1) % self._every == 0
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

    def backward_began(self, tensors: Sequence[Tensor]) -> None:
        if self._stop is not None:
            self._stop.backward_began()

    def backward_ended(self) -> None:
        if self._stop is not None:
            self._stop.backward_ended()

    def step_ended(self, trace: StepTrace) -> None:
        seen, self._seen = self._seen, []
        self._looked_at = 0
        self._calls.clear()
        self._recent.clear()
        if len(self._paths) > _MOST_KNOWN:  # of ever new models; they are found anew where they are needed
            self._paths.clear()
            self._ends.clear()
        self._lines.step_ended(seen, trace)
        if self._stop is not None:
            self._stop.step_ended()

    def fields(self) -> Mapping[str, Any]:
        return {
            "tensors_read": self._lines.written,
            "tensors_checked": self._clean + self._lines.clean,
            "tensors_skipped": {
                reason: {"count": count, "layers": layers} for reason, (count, layers) in self._skipped.items()
            },
            "first_bad": self._lines.first_bad,
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
        finite = None if self._is_sampled else self._found_finite(tensor, values)
        if finite is not None:
            self._looked_at += 1
            self._clean += 1
            if self._stop is not None:
                self._stop.passed(brick, direction, path, tensor, self._step, finite.peak)
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
        seq = self._looked_at
        self._looked_at += 1
        self._seen.append(Seen(seq, reading, row, self._is_sampled))
        is_bad = row is None and reading.is_bad
        if self._payload is not None and (self._is_sampled or is_bad):
            self._payload.keep(brick.layer, direction, path, tensor, values, seq)
        if is_bad:
            self._lines.note_bad(reading.line(self._step, seq))
        if self._stop is not None:
            self._stop.look(reading, tensor, call, self._step)

    def _found_finite(self, tensor: Tensor, values: Tensor | None) -> Finite | None:
        """None where it is not all finite, and where that cannot be told at once."""
        if values is None:
            return FINITE
        found = self._recent.find_finite(tensor)
        if found is None:
            if self._stop is not None:
                found = found_finite_to(values)
            elif values.device.type in self._on_host:
                found = found_finite(values)
            if found is not None:
                self._recent.add_finite(tensor, found)
        return found

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
