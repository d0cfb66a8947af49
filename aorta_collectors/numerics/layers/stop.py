"""Stopping the line (`on_bad: stop`): the first layer whose output, or gradient, is bad ends the program, diagnosed.

A gradient is that of a layer's output, so that one that is bad was made by what comes after: the layer whose own
gradient was seen clean just before is the one that is named, or, where several layers took the output in, one of those.

In a step whose statistics are not taken a layer is only known to be clean. What the diagnosis tells of its tensor is
read when the line is stopped, if the tensor is still there as it was. An output that is there when the backward pass
begins, since autograd needs it, is held until the next layer's gradient was seen clean.

With a GradScaler Inf and NaN in gradients are part of its work: it skips the step and scales less. A gradient of a loss
that was scaled stops the line only when that goes on for longer than the scale can be halved.
"""

from __future__ import annotations

import sys
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from torch import Tensor

from aorta_collectors.numerics.brick import Brick
from aorta_collectors.numerics.layers.causes import Cause, Facts, Given, causes_of
from aorta_collectors.numerics.layers.clean import Clean
from aorta_collectors.numerics.layers.diagnosis import diagnosis
from aorta_collectors.numerics.layers.evidence import bad_lookups, flat_rows, last_operations, loses_eps, masked_rows
from aorta_collectors.numerics.layers.layer_call import LayerCall
from aorta_collectors.numerics.layers.layer_reading import LayerReading
from aorta_collectors.numerics.names import EXIT_STOPPED
from aorta_collectors.numerics.part import LineStopped
from aorta_collectors.numerics.spans.span import BACKWARD, FORWARD
from aorta_collectors.observe.tensor_stats import TensorStats

_RUN_UP = 6  # steps that are remembered
# Of a scale of 2**16, which is what a GradScaler begins with, and a few more.
_MOST_SKIPS = 20
_MOST_PARAMETERS = 64
_MOST_BRICKS = 1000  # that are remembered, before those are looked for that are gone

Read = Callable[[Tensor], "TensorStats | None"]


class StopTheLine:
    """Follows the readings of a step. Memory is bounded by the number of layers.

    Args:
        read: Gives the statistics of a tensor at once.
        write: Takes the diagnosis.

    Attributes:
        stopped: What the line was stopped with, as the summary tells it; None as long as it runs.
    """

    def __init__(self, read: Read, write: Callable[[str], object] | None = None) -> None:
        self._read = read
        self._write = write
        self.stopped: dict[str, Any] | None = None
        self._clean: dict[str, Clean] = {}
        self._peaks: dict[tuple[int, str, str], deque[tuple[int, float]]] = {}
        self._outputs: dict[int, list[Clean]] = {}
        self._unread: list[int] = []  # numbers of bricks with outputs of this step that were not read
        self._operations: dict[int, tuple[str, ...]] = {}
        self._made: dict[int, tuple[weakref.ref[Tensor], Brick]] = {}
        self._takers: dict[int, list[Brick]] = {}
        self._root_call: LayerCall | None = None
        self._is_scaled = self._was_bad = False
        self._skips = 0
        self._most = _MOST_BRICKS

    # -- what is going on

    def entered(self, call: LayerCall) -> None:
        """A call of a layer begins: which layers gave out what it takes in?"""
        if call.brick.is_root:
            self._root_call = call
        for argument in call.args:
            if isinstance(argument, Tensor):
                made = self._made.get(id(argument))
                if made is not None and made[0]() is argument:
                    takers = self._takers.setdefault(made[1].number, [])
                    if call.brick not in takers:
                        takers.append(call.brick)

    def loss_scaled(self) -> None:
        self._is_scaled = True

    def backward_began(self) -> None:
        for number in self._unread:
            self._outputs[number] = [output.held() for output in self._outputs[number]]

    def backward_ended(self) -> None:
        if BACKWARD in self._clean:
            self._clean[BACKWARD] = self._clean[BACKWARD].let_go()
        for number in self._unread:
            self._let_go(number)

    def _let_go(self, number: int) -> None:
        """Of a brick's outputs."""
        self._outputs[number] = [output.let_go() for output in self._outputs.get(number, ())]

    def step_ended(self) -> None:
        self._skips = self._skips + 1 if self._is_scaled and self._was_bad else 0
        self._is_scaled = self._was_bad = False
        self.backward_ended()  # where it was left by an exception
        self._unread.clear()
        self._clean.clear()
        self._made.clear()
        self._takers.clear()
        self._root_call = None
        if len(self._outputs) > self._most:
            self._forget()

    def _forget(self) -> None:
        """Let go of modules that are gone: a program may make ever new models."""
        alive = {
            number for number, seen in self._outputs.items() if any(one.brick.module() is not None for one in seen)
        }
        self._outputs = {number: seen for number, seen in self._outputs.items() if number in alive}
        self._peaks = {key: peaks for key, peaks in self._peaks.items() if key[0] in alive}
        self._operations = {number: names for number, names in self._operations.items() if number in alive}
        self._most = max(_MOST_BRICKS, 2 * len(alive))

    def look(self, reading: LayerReading, tensor: Tensor, call: LayerCall | None, step: int) -> None:
        """A reading, in the order of the step.

        Raises:
            LineStopped: It is bad.
        """
        peaks = self._peaks_of(reading.brick, reading.direction, reading.path, step, reading.stats.finite_abs_max)
        if reading.is_bad:
            if reading.direction == BACKWARD and self._is_scaled and self._skips < _MOST_SKIPS:
                self._was_bad = True
                return
            self._stop(reading, tensor, call, step, list(peaks))
        self._passed(Clean.read(reading), reading.direction, tensor)

    def _peaks_of(
        self, brick: Brick, direction: str, path: str, step: int, peak: float | None
    ) -> deque[tuple[int, float]]:
        """The largest finite magnitudes of a tensor, of this step last."""
        peaks = self._peaks.setdefault((brick.number, direction, path), deque(maxlen=_RUN_UP))
        if peak is not None:
            peaks.append((step, peak))
        return peaks

    def passed(self, brick: Brick, direction: str, path: str, tensor: Tensor, step: int, peak: float | None) -> None:
        """A tensor that is all finite, of which no more is known than its largest magnitude."""
        self._peaks_of(brick, direction, path, step, peak)
        if direction == FORWARD:
            self._unread.append(brick.number)
        self._passed(Clean.unread(brick, path, tensor, hold=direction == BACKWARD), direction, tensor)

    def _passed(self, clean: Clean, direction: str, tensor: Tensor) -> None:
        before = self._clean.get(direction)
        self._clean[direction] = clean
        if direction == BACKWARD:
            if self._unread and before is not None and before.brick is not clean.brick:
                self._let_go(before.brick.number)
        else:
            self._made[id(tensor)] = (weakref.ref(tensor), clean.brick)
            self._remember(clean, tensor)
            if clean.brick.is_root:
                self._root_call = None

    def _remember(self, clean: Clean, tensor: Tensor) -> None:
        """What the backward pass would have to be explained with."""
        number = clean.brick.number
        outputs = self._outputs.setdefault(number, [])
        if any(other.path == clean.path for other in outputs):
            outputs.clear()
        outputs.append(clean)
        module = clean.brick.module()
        if not type(module).__module__.startswith("torch.nn."):
            self._operations[number] = last_operations(tensor)

    # -- the end

    def _stop(
        self,
        reading: LayerReading,
        tensor: Tensor,
        call: LayerCall | None,
        step: int,
        run_up: list[tuple[int, float]],
    ) -> NoReturn:
        if self.stopped is None:
            try:
                facts = self._facts(reading, tensor, call, step, run_up)
            except Exception:  # whatever cannot be looked at: the line is stopped all the same
                facts = Facts(reading, reading.brick.layer, reading.brick.module_type, step, run_up=run_up)
            causes = causes_of(facts)
            self.stopped = _told(facts, causes)
            (self._write or _to_stderr)(diagnosis(facts, causes))
        raise LineStopped(EXIT_STOPPED)

    def _facts(
        self,
        reading: LayerReading,
        tensor: Tensor,
        call: LayerCall | None,
        step: int,
        run_up: list[tuple[int, float]],
    ) -> Facts:
        clean = self._clean.get(reading.direction)
        brick = reading.brick if reading.direction == FORWARD else self._maker(reading, clean)
        module = brick.module()
        common: dict[str, Any] = {
            "seen": reading,
            "layer": brick.layer,
            "module_type": brick.module_type,
            "step": step,
            "before": clean.brick.layer if clean is not None else "",
            "run_up": run_up,
            "parameters": self._parameters(brick),
        }
        if reading.direction == BACKWARD:
            came_in = [] if clean is None else self._known({f"gradient in, {clean.brick.layer}": [clean]})
            sources = {reading.brick.number: reading.brick, brick.number: brick}
            outputs = self._known(
                {f"output of {source.layer}": self._outputs.get(source.number, ()) for source in sources.values()}
            )
            operations = self._operations.get(brick.number, ())
            return Facts(inputs=came_in, outputs=outputs, operations=operations, **common)
        given = [] if call is None else self._inputs(call, tensor)
        root = self._root_call
        operations = () if type(module).__module__.startswith("torch.nn.") else last_operations(tensor)
        return Facts(
            inputs=given,
            operations=operations,
            root_inputs=[] if root is None else self._inputs(root, tensor),
            masked_rows=masked_rows(module, call),
            flat_rows=flat_rows(module, call),
            eps_is_lost=loses_eps(module, reading.dtype),
            bad_lookups=bad_lookups(module, call),
            **common,
        )

    def _known(self, named: Mapping[str, Sequence[Clean]]) -> list[Given]:
        """Of tensors that were clean, as far as there are statistics of them."""
        found = []
        for name, those in named.items():
            for clean in those:
                stats = clean.stats(self._read)
                if stats is not None:
                    found.append(Given(name, clean.dtype, clean.shape, stats))
        return found

    def _maker(self, reading: LayerReading, clean: Clean | None) -> Brick:
        """Of a bad gradient of `reading.brick`'s output, the layer whose backward it came out of."""
        takers = [taker for taker in self._takers.get(reading.brick.number, ()) if taker.is_leaf]
        if clean is None:
            return reading.brick
        return clean.brick if clean.brick in takers or not takers else takers[-1]

    def _inputs(self, call: LayerCall, output: Tensor) -> list[Given]:
        found = []
        for path, tensor in call.inputs():
            stats = self._read(tensor)
            if stats is not None:
                is_spoilt = tensor is output or (tensor.data_ptr() == output.data_ptr() and tensor.numel() > 0)
                found.append(Given(f"input {path}", tensor.dtype, tuple(tensor.shape), stats, is_spoilt))
        return found

    def _parameters(self, brick: Brick) -> list[Given]:
        module = brick.module()
        found = []
        for name, parameter in [] if module is None else list(module.named_parameters())[:_MOST_PARAMETERS]:
            stats = self._read(parameter)
            if stats is not None:
                found.append(Given(f"parameter {name}", parameter.dtype, tuple(parameter.shape), stats))
        return found


def _told(facts: Facts, causes: list[Cause]) -> dict[str, Any]:
    return {
        "layer": facts.layer,
        "module_type": facts.module_type,
        "step": facts.step,
        "direction": facts.seen.direction,
        "tensor_path": facts.seen.path,
        "seen_at": facts.seen.brick.layer,
        "kind": "nan" if facts.seen.stats.nan_count else "inf",
        "causes": [cause._asdict() for cause in causes],
    }


def _to_stderr(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()
