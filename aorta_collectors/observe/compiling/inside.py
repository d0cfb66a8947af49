"""What went on inside compiled code, told to the trace of the calls around it.

A region's run is looked at when it ends. If it gave out a bad value and took in none, its graph is run again to find
the operation, and the module that it belongs to. For the way back the gradients of its outputs are kept; once a bad
one arrives at a parameter or an input, while those were clean, the graph is run again backward.

Only in host memory: on an accelerator, knowing whether a value is bad would wait for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from aorta_collectors.observe.compiling.located import Located, is_bad
from aorta_collectors.observe.compiling.region import Inputs, Region
from aorta_collectors.observe.compiling.regions import CompiledRegions
from aorta_collectors.observe.compiling.scope import Scope
from aorta_collectors.observe.input_gradient import hook_gradient
from aorta_collectors.observe.tensors import tensors_of
from aorta_collectors.observe.trace import CallTrace

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


class InsideWatch:
    """Looks inside compiled regions for the origin of bad values. No method raises.

    Args:
        trace: Whose running call is told what was found in the forward pass.
        path_of: The path of a module below the root, None if it is not known.
        failed: Called with exceptions of our own.

    Attributes:
        regions: The regions of this process.
        backward: What was found in the backward pass of this step, or None.
    """

    def __init__(
        self,
        trace: CallTrace,
        path_of: Callable[[nn.Module], str | None],
        failed: Callable[[Exception], None],
    ) -> None:
        self._trace = trace
        self._path_of = path_of
        self._failed = failed
        self._runs: list[_Run] = []
        self._found_forward = False
        self.backward: Inside | None = None
        self.regions = CompiledRegions(self._ran)

    def start(self) -> None:
        self.regions.start()

    def stop(self) -> None:
        self.regions.stop()
        self.begin_step()

    def unseen(self) -> list[str]:
        """What cannot be looked into, in words."""
        regions = self.regions
        if not regions.supported:
            return ["compiled code (this version of torch is not known)"]
        failed = [f"compiled code ({regions.first_error})"] if regions.first_error is not None else []
        return failed + ([f"{regions.unwatched} compiled region(s)"] if regions.unwatched else [])

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

    def _ran(self, region: Region, inputs: Inputs, outputs: Any) -> None:
        try:
            self._look(region, inputs, outputs)
        except Exception as error:
            self._failed(error)

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
