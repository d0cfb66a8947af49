"""What went on inside compiled code, told to the trace of the calls around it.

A region's run is looked at when it ends. If it gave out a bad value and took in none, its graph is run again to find
the operation, and the module that it belongs to. For the way back the gradients of its outputs are kept; once a bad
one arrives at a parameter or an input, while those were clean, the graph is run again backward.

Only in host memory: on an accelerator, knowing whether a value is bad would wait for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from aorta_collectors.observe.compiling.located import Located, is_bad
from aorta_collectors.observe.compiling.region import Inputs, Region
from aorta_collectors.observe.compiling.scope import Scope
from aorta_collectors.observe.input_gradient import hook_gradient, wants_gradient
from aorta_collectors.observe.observation import Moment, Site
from aorta_collectors.observe.tensors import tensors_of
from aorta_collectors.observe.trace import Call, CallTrace, Mark, in_backward

_RUNS = 256  # of a step whose backward pass is still to come


class Inside(NamedTuple):
    """What made a bad value inside compiled code.

    Attributes:
        module_path: Of the module, below the root; None where it is not known, and the call around it has to do.
        where: The captured function, the source line, and how large the values were that the operation was given.
    """

    module_path: str | None
    where: str


class _Run:
    """A run whose backward pass may come: what a replay needs, and the gradients that have arrived."""

    def __init__(self, region: Region, inputs: Inputs, scope: Scope, num_outputs: int) -> None:
        self.region = region
        self.inputs = inputs
        self.scope = scope
        self.gradients: list[Tensor | None] = [None] * num_outputs


class InsideEye(Protocol):
    """What looks at the tensors (the observer)."""

    def observe(self, site: Site, tensor: Tensor, moment: Moment) -> int | None: ...
    def moment(self, invocation: int, recompute: bool) -> Moment: ...
    def failed(self, error: Exception) -> None: ...


class InsideWatch:
    """Looks inside compiled regions for the origin of bad values. No method raises.

    Args:
        trace: Whose running call is told what was found in the forward pass. A region that no call encloses, of a
            compiled training step, is a call of its own there.
        path_of: The path of a module below the root, None if it is not known.

    Attributes:
        backward: What was found in the backward pass of this step, or None.
    """

    def __init__(self, trace: CallTrace, path_of: Callable[[nn.Module], str | None], eye: InsideEye) -> None:
        self._trace = trace
        self._path_of = path_of
        self._eye = eye
        self._runs: list[_Run] = []
        self._found_forward = False
        self.backward: Inside | None = None

    def begin_step(self) -> None:
        self._runs.clear()
        self._found_forward = False
        self.backward = None

    def gradient(self, grad: Tensor) -> None:
        """A gradient has arrived at a parameter or at a tensor between modules; it may come out of a region."""
        if self.backward is not None or not self._runs or grad.device.type != "cpu" or not is_bad(grad):
            return
        for run in self._runs:
            arrived = [gradient for gradient in run.gradients if gradient is not None]
            if arrived and not is_bad(arrived):
                located = run.region.locate_backward(run.inputs, run.gradients, run.scope)
                if located is not None:
                    self.backward = self._inside(located, run.scope, run.region)
                    break
        self._runs.clear()  # what comes after the first bad gradient spreads it

    def ran(self, region: Region, inputs: Inputs, outputs: Any) -> None:
        """A region has run."""
        try:
            if self._trace.current is not None or in_backward():
                self._look(region, inputs, outputs)
            else:
                self._look_outside_of_calls(region, inputs, outputs)
        except Exception as error:
            self._eye.failed(error)

    def _look_outside_of_calls(self, region: Region, inputs: Inputs, outputs: Any) -> None:
        """Of a region that no module's call encloses: take down what it was given, and what it gave out."""
        call = self._trace.enter(region.label, region.label, 1, False)
        try:
            for path, tensor in region.given(inputs):
                index = self._observe(call, "input", path, tensor)
                if index is not None:
                    call.inputs.append(index)
                    if tensor.grad_fn is not None:
                        call.computed.append(index)
            self._look(region, inputs, outputs)
            for path, tensor in tensors_of(outputs):
                self._observe(call, "act", path, tensor)
                if wants_gradient(tensor):
                    self._trace.produced(call, tensor)
                self._trace.given_out(tensor)
        finally:
            self._trace.leave(call)

    def _observe(self, call: Call, role: str, path: str, tensor: Tensor) -> int | None:
        site = Site(call.layer, "fwd", role, tensor_path=path, recorded=False, is_flow=False)
        index = self._eye.observe(site, tensor, self._eye.moment(1, False))
        self._trace.mark(index, Mark(call))
        return index

    def _look(self, region: Region, inputs: Inputs, outputs: Any) -> None:
        tensors = [tensor for _, tensor in tensors_of(outputs) if tensor.device.type == "cpu"]
        call = self._trace.current
        if is_bad(tensors):
            if self._found_forward or call is None or is_bad(inputs.values):
                return
            self._found_forward = True
            located = region.locate(inputs)
            if located is not None and not located.by_design:
                call.inside = self._inside(located, region.scope(), region)
        elif torch.is_grad_enabled() and len(self._runs) < _RUNS:
            outs = [tensor for _, tensor in tensors_of(outputs)]
            if any(tensor.requires_grad for tensor in outs):
                self._await_gradients(_Run(region, inputs, region.scope(), len(outs)), outs)

    def _await_gradients(self, run: _Run, outputs: list[Tensor]) -> None:
        def keep(position: int) -> Callable[[Tensor], None]:
            def hook(grad: Tensor) -> None:
                run.gradients[position] = grad

            return hook

        for position, tensor in enumerate(outputs):
            if tensor.requires_grad and not tensor.is_leaf:
                hook_gradient(tensor, keep(position))
        self._runs.append(run)

    def _inside(self, located: Located, scope: Scope, region: Region) -> Inside:
        where = f"{located.where} of {region.label}" if region.label else located.where
        if located.input_abs_max is not None:
            where += f", given values up to {located.input_abs_max:.3g},"
        path = self._path_of(located.module) if located.module is not None else None
        if path is None and scope.own.module is not None:
            own = self._path_of(scope.own.module)
            if own is None or not located.module_path:
                path = own
            else:
                path = located.module_path if own == "(root)" else f"{own}.{located.module_path}"
        return Inside(path, where)
