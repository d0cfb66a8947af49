"""A program's own observations: `observe` and `watch_grad` record where a session is armed, and else do nothing."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any, TypeVar

from aorta_collectors.observe.beacon import Beacon

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from aorta_collectors.observe.input_gradient import KeptHooks
    from aorta_collectors.tensors.recorder import Recorder

_MOST_CHARACTERS = 200
_MOST_WARNINGS = 20
_NO_NAME = f"its name does not have 1 to {_MOST_CHARACTERS} printable characters"

T = TypeVar("T")


def observe(value: T, *, name: str) -> T:
    """Record a tensor as it is now, under the name user:NAME.

    `hidden = observe(hidden, name="gated")` in the forward of a module, or anywhere else. Compared between runs by name
    and by how often that came before, so one name may be used in a loop.

    Args:
        value: A tensor, or tuples, mappings and objects of tensors, each of which is told by where it stands in there:
            user:NAME[0].
        name: Printable, 1 to 200 characters. Under any other nothing is recorded, and the summary says so.

    Returns:
        `value` itself.
    """
    if _is_compiled():
        from aorta_collectors.tensors.compiled import traced

        if _is_name(name):
            traced.observe(value, name)
        return value
    armed = _armed()
    if armed is not None:
        armed.observe(name, value)
    return value


def watch_grad(tensor: Tensor, *, name: str) -> Tensor:
    """Record the gradient of a tensor, under the name grad:NAME, when a backward pass has computed it.

    What is recorded is what this pass has computed for the tensor from all of its uses. Of a parameter that is what the
    pass adds to `.grad`, not what has accumulated there, which is observed at after_backward. A parameter stays watched
    until the observation ends, any other tensor as long as autograd knows it.

    Args:
        tensor: One that requires a gradient.
        name: As of `observe`.

    Returns:
        `tensor` itself.
    """
    if _is_compiled():
        from aorta_collectors.tensors.compiled import traced

        if _is_name(name):
            traced.watch_grad(tensor, name)
        return tensor
    armed = _armed()
    if armed is not None:
        armed.watch_grad(name, tensor)
    return tensor


class Observers(Beacon):
    """Where those two find what is armed in their process.

    Args:
        warn: Told what cannot be recorded.
        run: Calls a function with arguments; counts what it raises, and the time that it takes.
    """

    def __init__(self, recorder: Recorder, warn: Callable[[str], None], run: Callable[..., None]) -> None:
        super().__init__()
        self._recorder = recorder
        self._warn = warn
        self._warned: set[str] = set()
        self._run = run
        self._leaves: dict[str, KeptHooks] = {}

    def put_out(self) -> None:
        super().put_out()
        for hooks in self._leaves.values():
            hooks.clear()

    def observe(self, name: str, value: Any) -> None:
        self._run(self._observe if _is_name(name) else self._refuse, name, value)

    def watch_grad(self, name: str, tensor: Any) -> None:
        self._run(self._watch_grad if _is_name(name) else self._refuse, name, tensor)

    def _refuse(self, name: Any, _: Any) -> None:
        """A name that is made from data may turn out to be none after hours, which must not end the program."""
        self._recorder.pass_over(_NO_NAME)
        self._tell(f"observe, watch_grad: {repr(name)[:_MOST_CHARACTERS]} is not recorded: {_NO_NAME}")

    def _tell(self, message: str) -> None:
        """Once: the program may come by in each step."""
        if message not in self._warned and len(self._warned) < _MOST_WARNINGS:
            self._warned.add(message)
            self._warn(message)

    def _observe(self, name: str, value: Any) -> None:
        from aorta_collectors.observe.tensors import tensors_of

        found = tensors_of(value, cut=lambda most: self._tell(f"observe({name!r}): only {most} tensors are recorded"))
        for path, tensor in found:
            self._recorder.take_user(name, tensor, path=path)
        if not found:
            self._tell(f"observe({name!r}): there is no tensor in a {type(value).__name__}")

    def _watch_grad(self, name: str, tensor: Any) -> None:
        import torch

        from aorta_collectors.observe.input_gradient import KeptHooks, hook_gradient

        with torch._C.DisableTorchFunctionSubclass():  # a subclass is not to see what is asked of its tensor
            if not isinstance(tensor, torch.Tensor) or not tensor.requires_grad:
                self._tell(f"watch_grad({name!r}): what it is given requires no gradient")
            elif tensor.is_leaf:
                # It comes again in each step.
                hooks = self._leaves.setdefault(name, KeptHooks())
                hooks.put(tensor, lambda grad: self._computed(name, grad))
            else:
                hook_gradient(tensor, lambda grad: self._computed(name, grad))

    def _computed(self, name: str, grad: Tensor) -> None:
        if type(self).find() is self:  # observation has not ended, and this is no fork
            self._run(functools.partial(self._recorder.take_user, gradient=True), name, grad)


def _armed() -> Observers | None:
    """What there is to tell; nothing where torch traces the program, which must not notice."""
    torch = sys.modules.get("torch")
    armed = None if torch is None or torch.compiler.is_compiling() else Observers.find()
    if armed is None:
        return None
    from aorta_collectors.observe.calls import is_recording_program

    return None if is_recording_program() else armed


def _is_compiled() -> bool:
    """Whether torch.compile traces the caller: to it, this is a constant."""
    torch = sys.modules.get("torch")
    return torch is not None and torch.compiler.is_dynamo_compiling()


def _is_name(name: Any) -> bool:
    return isinstance(name, str) and bool(name.strip()) and name.isprintable() and len(name) <= _MOST_CHARACTERS
