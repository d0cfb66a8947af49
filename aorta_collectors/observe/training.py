"""What a training step does outside of module calls: the loss, gradients on their way back, the optimizer's update."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from aorta_collectors.observe.backward import BackwardWatch
from aorta_collectors.observe.observation import Moment, Observation, Site
from aorta_collectors.observe.optimizers import OptimizerWatch
from aorta_collectors.observe.recorded import Recorded
from aorta_collectors.observe.request import Request
from aorta_collectors.observe.root import Root
from aorta_collectors.observe.step_trace import Outcome
from aorta_collectors.observe.trace import CallTrace, Mark, Token

LOSS_LAYER = "(loss)"


class TrainingEye(Protocol):
    """What looks at the tensors (the observer)."""

    @property
    def calls_traced(self) -> CallTrace | None: ...
    def observe(self, site: Site, tensor: Tensor, moment: Moment) -> int | None: ...
    def read(self, values: Iterable[tuple[Site, Tensor]]) -> None: ...
    def moment(self, invocation: int, recompute: bool) -> Moment: ...
    def bounds_of(self, layer: str) -> tuple[float, float] | None: ...
    def gradient_read(self, token: Token, index: int | None, grad: Tensor) -> None: ...
    def guarded(self, function: Any, *args: Any) -> None: ...
    def timed(self, function: Any, *args: Any) -> None: ...
    def drain_if_long(self, *, is_long: bool) -> None: ...


class TrainingWatch:
    """Shows gradients to the eye at the optimizer's step, and where an origin is wanted all the rest.

    Args:
        roots: Called for the roots whose parameters count.
        arrived: Called with each gradient that backward has computed, after it has been looked at.

    Attributes:
        reads_gradients: Whether records of gradients were asked for.
        grads_observed: How many were made.
    """

    def __init__(
        self,
        request: Request,
        eye: TrainingEye,
        roots: Callable[[], Iterable[Root[Recorded]]],
        arrived: Callable[[Tensor], None],
    ) -> None:
        self._eye = eye
        self._roots = roots
        self._arrived = arrived
        self._origin = request.origin
        self.reads_gradients = any({"wgrad", "bgrad"} & set(group.channels) for group in request.groups)
        self.grads_observed = 0
        self._optimizers = OptimizerWatch(
            functools.partial(eye.timed, self._read_gradients) if request.origin or self.reads_gradients else None,
            functools.partial(eye.timed, self._optimizer_ended),
        )
        self._backwards = BackwardWatch(
            functools.partial(eye.timed, self._backward_began),
            functools.partial(eye.timed, self._asked),
            functools.partial(eye.timed, self._derived),
            functools.partial(eye.timed, self._scaled),
            self._scaler_skipped,
            lambda: self.num_steps,
            functools.partial(eye.timed, self._computed),
        )
        self._loss = Site(LOSS_LAYER, "fwd", "loss", bounds=eye.bounds_of(LOSS_LAYER) if request.origin else None)
        self._differentiated = Site(LOSS_LAYER, "fwd", "loss", tensor_path="differentiated", recorded=False)
        self._unscaled = Site(LOSS_LAYER, "fwd", "loss", tensor_path="unscaled", recorded=False)
        self._found = Site("(scaler)", "scaler", "found_inf", recorded=False)
        # Optimizers, by id(), and the observations that tell whether they were kept from stepping; none if they were.
        self._skips: list[tuple[int, list[int]]] = []
        self._is_scaled = False
        self._stepped_in_step: set[int] = set()

    def start(self) -> None:
        self._optimizers.start()
        if self._origin:
            self._backwards.start()

    def stop(self) -> None:
        self._optimizers.stop()
        self._backwards.stop()

    def begin_step(self) -> None:
        self._optimizers.forget()
        self._stepped_in_step.clear()

    @property
    def num_steps(self) -> int:
        """Optimizer steps taken so far."""
        return self._optimizers.num_steps

    def count_steps(self, number: int) -> None:
        """Optimizer steps that no hook was called for; or, negative, some that were not taken though one was."""
        self._optimizers.num_steps += number

    def take(self) -> Callable[[Sequence[Observation]], Outcome]:
        """What became of the gradients since this was last asked, to be told by the step's observations."""
        skips, self._skips = self._skips, []
        stepped = self._optimizers.take()
        scaled, self._is_scaled = self._is_scaled, False

        def outcome(observations: Sequence[Observation]) -> Outcome:
            skipped = frozenset(
                optimizer
                for optimizer, found in skips
                if not found or any(observations[index].stats.finite_max for index in found)
            )
            return Outcome(scaled, skipped, stepped - skipped)

        return outcome

    def gradient_of_token(self, site: Site, token: Token, grad: Tensor) -> None:
        """Backward has computed the gradient of a tensor that passed between modules."""
        self._eye.timed(self._mark_gradient, site, token, grad)

    def gradient_of_parameter(self, site: Site, grad: Tensor) -> None:
        """Backward has computed a parameter's gradient, or summed it up with earlier ones."""
        self._eye.timed(self._look_at_gradient, site, grad)

    def _look_at_gradient(self, site: Site, grad: Tensor) -> None:
        self._eye.observe(site, grad, self._eye.moment(0, False))
        if site.direction == "bwd":
            self._arrived(grad)

    def _mark_gradient(self, site: Site, token: Token, grad: Tensor) -> None:
        self._eye.gradient_read(token, self._eye.observe(site, grad, self._eye.moment(0, False)), grad)

    def _backward_began(self, tensors: Sequence[Tensor]) -> None:
        self._eye.drain_if_long(is_long=False)
        self._look(self._loss, tensors)

    def _asked(self, tensors: Sequence[Tensor]) -> None:
        self._look(self._differentiated, tensors)

    def _look(self, site: Site, tensors: Sequence[Tensor]) -> None:
        for tensor in tensors:
            self._eye.guarded(self._eye.observe, site, tensor, self._eye.moment(0, False))

    def _derived(self, gradients: Sequence[Tensor]) -> None:
        trace = self._eye.calls_traced
        if trace is not None:
            for gradient in gradients:
                trace.derived(gradient)

    def _scaled(self, outputs: Any) -> None:
        self._is_scaled = True
        if isinstance(outputs, Tensor):
            self._eye.observe(self._unscaled, outputs, self._eye.moment(0, False))

    def _computed(self, name: str, operation: int, gradient: Tensor) -> None:
        trace = self._eye.calls_traced
        call = trace.call_of(operation) if trace is not None else None
        layer, path = (call.layer, call.module_path) if call is not None else (LOSS_LAYER, LOSS_LAYER)
        site = Site(layer, "bwd", "operation", module_path=path, tensor_path=name, recorded=False)
        index = self._eye.observe(site, gradient, self._eye.moment(0, False))
        if trace is not None:
            trace.mark(index, Mark(call))

    def _scaler_skipped(self, optimizer: Any, found: Sequence[Tensor]) -> None:
        # Where only the device knows, the answer comes over with all that was seen.
        looked = [self._eye.observe(self._found, tensor, self._eye.moment(0, False)) for tensor in found]
        self._skips.append((id(optimizer), [index for index in looked if index is not None]))

    def _read_gradients(self, optimizer: torch.optim.Optimizer) -> None:
        """Read the gradients that an optimizer is about to use."""
        read = []
        for param in _parameters(optimizer):
            site = next(filter(None, (root.below.gradient_site(param) for root in self._roots())), None)
            if site is not None and param.grad is not None:
                read.append((site, param.grad))
                self.grads_observed += site.recorded
        self._eye.read(read)

    def _optimizer_ended(self, optimizer: torch.optim.Optimizer) -> None:
        if self._origin:
            self._read_updates(optimizer)
        # The same one twice in a step: the models' calls are not seen, and no new step will begin.
        self._eye.drain_if_long(is_long=id(optimizer) in self._stepped_in_step)
        self._stepped_in_step.add(id(optimizer))

    def _read_updates(self, optimizer: torch.optim.Optimizer) -> None:
        """Read what an optimizer has made of the parameters."""
        read = []
        for param in _parameters(optimizer):
            site = next(filter(None, (root.below.update_site(param) for root in self._roots())), None)
            if site is not None:
                read.append((site, param))
        self._eye.read(read)


def _parameters(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [param for group in optimizer.param_groups for param in group["params"]]
