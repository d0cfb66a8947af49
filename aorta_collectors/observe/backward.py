"""Noticing when a backward pass begins and ends, what one derives, and when a GradScaler skips an optimizer's step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from aorta_collectors.observe.patches import Patches
from aorta_collectors.observe.trace import in_backward

_MOST_NODES = 5000  # of a graph that anomaly detection is expected in


class BackwardWatch:
    """Stands around torch.autograd's two functions and two methods of GradScaler, and always calls through.

    Args:
        began: Called before a backward pass with the tensors that it starts from.
        asked: Called with tensors whose gradients are asked for without a backward pass, and with gradients that a
            backward pass is given to start from.
        derived: Called with gradients that the program has asked for and can take gradients of in turn.
        scaled: Called with what a GradScaler is given to scale.
        skipped: Called when a GradScaler did not let an optimizer step; with the optimizer, and the tensors that tell
            whether it did, where only the device knows.
        num_steps: Optimizer steps taken so far.
        computed: Called where anomaly detection is on, with bad gradients: the name of the operation that made one, the
            number that autograd gave it, and the gradient.
        ended: Called after a backward pass, whether its results were asked for or it filled in gradients, and whether
            it ended in order or by an exception.
    """

    def __init__(
        self,
        began: Callable[[Sequence[Tensor]], None],
        asked: Callable[[Sequence[Tensor]], None],
        derived: Callable[[Sequence[Tensor]], None],
        scaled: Callable[[Any], None],
        skipped: Callable[[Any, Sequence[Tensor]], None],
        num_steps: Callable[[], int],
        computed: Callable[[str, int, Tensor], None] | None = None,
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        self._began = began
        self._asked = asked
        self._derived = derived
        self._scaled = scaled
        self._computed = computed
        self._skipped = skipped
        self._num_steps = num_steps
        self._ended = ended
        self._patches = Patches()

    def start(self) -> None:
        scaler = torch.amp.grad_scaler.GradScaler
        self._patches.put(torch.autograd, "backward", self._around_backward)
        self._patches.put(torch.autograd, "grad", self._around_grad)
        self._patches.put(scaler, "scale", self._around_scale)
        self._patches.put(scaler, "step", self._around_step)

    def stop(self) -> None:
        self._patches.undo()

    def _around_backward(self, original: Any) -> Any:
        def backward(tensors: Any, grad_tensors: Any = None, *args: Any, **kwargs: Any) -> Any:
            # Activation checkpointing calls it inside a backward pass.
            if self._patches.stand and not torch.compiler.is_compiling() and not in_backward():
                tensors, grad_tensors = _kept(tensors), _kept(grad_tensors)
                self._began(_listed(tensors))
                self._asked(_listed(grad_tensors))
                self._expect_anomaly(_listed(tensors))
                try:
                    return original(tensors, grad_tensors, *args, **kwargs)
                finally:
                    self._ended()
            return original(tensors, grad_tensors, *args, **kwargs)

        return backward

    def _around_grad(self, original: Any) -> Any:
        def grad(outputs: Any, *args: Any, **kwargs: Any) -> Any:
            if self._patches.stand and not torch.compiler.is_compiling() and not in_backward():
                outputs = _kept(outputs)
                self._asked(_listed(outputs))
                self._expect_anomaly(_listed(outputs))
                try:
                    gradients = original(outputs, *args, **kwargs)
                finally:
                    self._ended()
            else:
                gradients = original(outputs, *args, **kwargs)
            if self._patches.stand and not torch.compiler.is_compiling():
                differentiable = [found for found in gradients if isinstance(found, Tensor) and found.requires_grad]
                if differentiable:
                    self._derived(differentiable)
            return gradients

        return grad

    def _expect_anomaly(self, tensors: Sequence[Tensor]) -> None:
        """Where anomaly detection is on, it ends the pass before the hook of any tensor has seen the NaN."""
        if self._computed is None or not (torch.is_anomaly_enabled() and torch.is_anomaly_check_nan_enabled()):
            return
        pending: list[Any] = [tensor.grad_fn for tensor in tensors if tensor.grad_fn is not None]
        known = set(pending)
        while pending and len(known) <= _MOST_NODES:
            node = pending.pop()
            node.register_hook(self._checking(self._computed, node.name(), node._sequence_nr()))
            new = {following for following, _ in node.next_functions if following is not None} - known
            known |= new
            pending += new

    def _checking(
        self, computed: Callable[[str, int, Tensor], None], name: str, number: int
    ) -> Callable[[Any, Any], None]:
        def check(gradients: Any, _given: Any) -> None:
            for gradient in gradients:
                if isinstance(gradient, Tensor) and self._patches.stand and not bool(gradient.isfinite().all()):
                    computed(name, number, gradient)
                    break

        return check

    def _around_scale(self, original: Any) -> Any:
        def scale(scaler: Any, outputs: Any) -> Any:
            if self._patches.stand and not torch.compiler.is_compiling():
                self._scaled(outputs)
            return original(scaler, outputs)

        return scale

    def _around_step(self, original: Any) -> Any:
        def step(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            before = self._num_steps()
            result = original(scaler, optimizer, *args, **kwargs)
            if self._patches.stand:
                if self._num_steps() == before:
                    self._skipped(optimizer, ())
                elif getattr(optimizer, "_step_supports_amp_scaling", False):
                    # A fused optimizer is called all the same, and skips on the device.
                    state = scaler._per_optimizer_states.get(id(optimizer), {})
                    self._skipped(optimizer, list(state.get("found_inf_per_device", {}).values()))
            return result

        return step


def _kept(tensors: Any) -> Any:
    """`tensors`, to be looked at more than once: an iterator is used up by that."""
    return tuple(tensors) if isinstance(tensors, Iterator) else tensors


def _listed(tensors: Any) -> list[Tensor]:
    if isinstance(tensors, Tensor):
        return [tensors]
    return [tensor for tensor in tensors if isinstance(tensor, Tensor)] if isinstance(tensors, (tuple, list)) else []
