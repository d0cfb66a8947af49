"""What a listener is told of: the points in a model's life, in the order in which they come.

Of a training step with one model, whose layer `fc` is told of:

    step_began(3) before_forward(3)
      entered("(root)") entered("fc") left("fc") left("(root)")
    after_forward(3)
      output_gradient("(root)") output_gradient("fc")
    after_backward(3) after_step(3)
    step_ended(3)                       when the next one begins, or with the last one when observing ends

A step may have several calls of models (a generator's, a discriminator's), several backward passes (accumulation), and
none or several optimizer steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from torch import Tensor, nn


class OwnParameter(NamedTuple):
    """A parameter of a model.

    Attributes:
        layer: Of the module that has it, without what wrappers add.
        name: In that module, such as "weight".
    """

    layer: str
    name: str
    module: nn.Module
    parameter: nn.Parameter


class Listener(Protocol):
    """Told on the program's own thread, never in a fork, never while the program is compiled or traced.

    What a method raises is caught and counted. It must change nothing, draw no random number, and keep no tensor
    beyond the step. Gradients come on whichever thread autograd computes them.
    """

    def attached(self, label: str) -> None:
        """A model was found; `label` is its class, and a number if it is not the first. Comes once for each."""

    def step_began(self, step: int) -> None:
        """Step `step` (1, 2, ...) begins."""

    def before_forward(self, step: int) -> None:
        """A model is about to be called. Nothing that encloses it is a module."""

    def entered(self, layer: str, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """A call of a layer begins.

        Args:
            layer: Its path below the model without what wrappers (torch.compile, DDP, FSDP) add, "(root)" for the
                model itself; behind the model's label and a dot for any model but the first.
            module: What a wrapper wraps, where it is one.
        """

    def left(self, layer: str, module: nn.Module, result: Any) -> None:
        """It has returned `result`. Not told where an exception has ended it."""

    def after_forward(self, step: int) -> None:
        """The call of the model has ended, also by an exception.

        Of a model that is only called inside of a compiled function, this comes with whatever is noticed next.
        """

    def output_gradient(self, layer: str, module: nn.Module, path: str, grad: Tensor) -> None:
        """The gradient of a tensor that a call of the layer returned has been computed, from all its uses.

        Args:
            path: Of that tensor in the result: "" where it is the result, else such as "[1]" or ".logits".
        """

    def after_backward(self, step: int, parameters: Iterable[OwnParameter]) -> None:
        """A backward pass has ended in order.

        Args:
            parameters: Those of all models, each once; found as they are asked for, and once only. Models that other
                threads train are left out.
        """

    def after_step(self, step: int, parameters: Iterable[OwnParameter]) -> None:
        """An optimizer has stepped. Those that step within a backward pass take one step together, behind it.

        Of a fused optimizer that a GradScaler has skip on a device, only the device knows: it is told as any.

        Args:
            parameters: Likewise, those that it holds; or all, where it holds copies or shards of them.
        """

    def step_ended(self, step: int, is_last: bool) -> None:
        """Nothing of step `step` comes any more. `is_last`: nor of any later one."""


class GraphListener(Protocol):
    """Told of CUDA graphs in addition. While one is captured, hooks run once and compute nothing.

    The points that lie in a captured stretch are told to the `Listener` while it is captured, since what is queued
    then runs again at every replay; `Lifecycle.is_capturing` says so. They belong to no step. At each replay the points
    that the graph holds come again, in a step of their own where it holds a model's call: those of models, passes and
    optimizers, not those of layers.
    """

    def capture_began(self, number: int) -> None:
        """Graph `number` (1, 2, ...) is about to be captured."""

    def capture_ended(self, number: int) -> None:
        """It has been."""

    def replayed(self, number: int) -> None:
        """A replay has been queued on the current stream: before the points that come after its forward pass."""

    def forgotten(self, number: int) -> None:
        """It is gone, or is captured anew under another number: it will not be replayed."""
