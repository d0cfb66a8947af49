"""From what happens in a model's life to the tensors that are recorded of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch import Tensor, nn

from aorta_collectors.observe.lifecycle.listener import OwnParameter
from aorta_collectors.observe.tensors import tensors_of, tensors_of_call
from aorta_collectors.tensors.config import Config
from aorta_collectors.tensors.names import AFTER_BACKWARD, AFTER_FORWARD, AFTER_STEP, BEFORE_FORWARD
from aorta_collectors.tensors.recorder import Recorder


class Watching:
    """A listener of observe.lifecycle.

    Args:
        warn: Told where not all tensors of a value are recorded.
        attached, began: Told as they are, a label and a step's number.
        written: Called when a step's observations have been handed on.

    Attributes:
        backward_passes: How many have ended.
    """

    def __init__(
        self,
        config: Config,
        recorder: Recorder,
        warn: Callable[[str], None],
        *,
        attached: Callable[[str], None],
        began: Callable[[int], None],
        written: Callable[[], None],
    ) -> None:
        self._recorder = recorder
        self._config = config
        self._points = frozenset(config.points)
        self._warn = warn
        self._attached = attached
        self._began = began
        self._written = written
        self._is_cut = False
        self._matched: set[str] = set()
        self.backward_passes = 0

    @property
    def unmatched(self) -> list[str]:
        """Patterns of `scope` that no module has been meant by so far."""
        return [pattern for pattern in self._config.scope or () if pattern not in self._matched]

    def wants(self, path: str, module: nn.Module) -> bool:
        """Whether a module's calls are to be told.

        Args:
            path: Below the model; empty for that itself.
        """
        if self._config.scope is None:
            return not path or next(module.children(), None) is None
        return self._is_meant(path)

    def wants_parameters(self, path: str, module: nn.Module) -> bool:
        """Whether its own parameters are: by default those of all modules."""
        return self._config.scope is None or self._is_meant(path)

    def _is_meant(self, path: str) -> bool:
        matching = self._config.patterns_of(path)
        self._matched.update(matching)
        return bool(matching)

    # -- what the lifecycle tells

    def attached(self, label: str) -> None:
        self._attached(label)

    def step_began(self, step: int) -> None:
        self._recorder.begin(step)
        self._began(step)

    def before_forward(self, step: int) -> None:
        """What goes into the model comes with `entered`."""

    def entered(self, layer: str, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        if BEFORE_FORWARD in self._points:
            for path, tensor in tensors_of_call(args, kwargs, self._cut):
                self._recorder.take(BEFORE_FORWARD, layer, type(module).__name__, "input", path, tensor)

    def left(self, layer: str, module: nn.Module, result: Any) -> None:
        if AFTER_FORWARD in self._points:
            for path, tensor in tensors_of(result, cut=self._cut):
                self._recorder.take(AFTER_FORWARD, layer, type(module).__name__, "output", path, tensor)

    def after_forward(self, step: int) -> None:
        """What came out of the model came with `left`."""

    def output_gradient(self, layer: str, module: nn.Module, path: str, grad: Tensor) -> None:
        if AFTER_BACKWARD in self._points:
            self._recorder.take(AFTER_BACKWARD, layer, type(module).__name__, "output_gradient", path, grad)

    def after_backward(self, step: int, parameters: Iterable[OwnParameter]) -> None:
        self.backward_passes += 1
        if AFTER_BACKWARD in self._points:
            for layer, name, module, parameter in parameters:
                grad = parameter.grad
                if grad is not None:
                    self._recorder.take(AFTER_BACKWARD, layer, type(module).__name__, "gradient", name, grad)

    def after_step(self, step: int, parameters: Iterable[OwnParameter]) -> None:
        if AFTER_STEP in self._points:
            for layer, name, module, parameter in parameters:
                self._recorder.take(AFTER_STEP, layer, type(module).__name__, "parameter", name, parameter)

    def step_ended(self, step: int, is_last: bool) -> None:
        self._recorder.end(is_last)
        self._written()

    def _cut(self, most: int) -> None:
        if not self._is_cut:
            self._is_cut = True
            self._warn(f"of a value with more than {most} tensors the others are not recorded")
