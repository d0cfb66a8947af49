"""How the observations of a step hang together: which call each belongs to, and which calls share a tensor.

Kept only where the origin of a bad value is wanted. Calls and tokens hold no tensors, so that a trace may outlive them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from aorta_collectors.observe.contributions import hook_contribution
from aorta_collectors.observe.input_gradient import KeptHooks, hook_gradient
from aorta_collectors.observe.observation import Observation, Site


class Call:
    """One call of one module.

    Attributes:
        layer, module_path: Of the module.
        parent: The call inside which it was made, or None.
        inputs: Indices of the observations of its inputs, in the step's order.
        computed: Those of them that autograd knows how they were computed.
        criterion: Whether the module computes a loss from outputs of the model, outside of it.
        has_mask: Whether it has something at hand that says which elements to leave out: a boolean input or buffer.
        takes_no_mask: Whether it is a layer that -Inf has no use in: not a softmax, nor anything unknown.
        runs_beside: Whether the module has no parameters and is called outside of the model, not on what that gave out.
        inside: What was found out about the inside of compiled code, or None.
    """

    __slots__ = (
        "computed",
        "criterion",
        "has_mask",
        "inputs",
        "inside",
        "invocation",
        "layer",
        "module_path",
        "parent",
        "recompute",
        "runs_beside",
        "takes_no_mask",
    )

    def __init__(
        self, layer: str, module_path: str, parent: Call | None, *, invocation: int = 1, recompute: bool = False
    ) -> None:
        self.layer = layer
        self.module_path = module_path
        self.parent = parent
        self.invocation = invocation
        self.recompute = recompute
        self.inputs: list[int] = []
        self.computed: list[int] = []
        self.criterion: bool = parent.criterion if parent is not None else False
        self.has_mask = False
        self.takes_no_mask = False
        self.runs_beside: bool = parent.runs_beside if parent is not None else False
        self.inside: Any = None

    def is_within(self, other: Call) -> bool:
        """Whether this call is `other`, or was made inside it."""
        call: Call | None = self
        while call is not None and call is not other:
            call = call.parent
        return call is not None

    @property
    def is_ahead_of_step(self) -> bool:
        """Whether it prepares a batch, which the clock tells only when the model is called with it."""
        return self.runs_beside and not self.criterion

    @property
    def is_in_masked(self) -> bool:
        """Whether a call around this one has a mask at hand, from which it may have made another."""
        return self.parent is not None and (self.parent.has_mask or self.parent.is_in_masked)

    @property
    def depth(self) -> int:
        depth, call = 0, self.parent
        while call is not None:
            depth, call = depth + 1, call.parent
        return depth


class Token:
    """One tensor at one version, whoever passes it on: the calls that gave it out, and those that took it in."""

    __slots__ = ("consumers", "producers", "step", "version")

    def __init__(self, version: int) -> None:
        self.version = version
        self.step = 0
        self.consumers: list[Call] = []
        self.producers: list[Call] = []

    def renew(self, step: int) -> None:
        """Forget the calls of an earlier step: a tensor may be passed on in each step anew."""
        if self.step != step:
            self.step = step
            self.consumers, self.producers = [], []


class Mark(NamedTuple):
    """What an observation belongs to.

    Attributes:
        computed: Of a tensor with -Inf, whether they were computed, and not written there as a mask's are; None where
            that is not known.
    """

    call: Call | None = None
    token: Token | None = None
    computed: bool | None = None


_NO_MARK = Mark()


class Outcome(NamedTuple):
    """What became of a step's gradients.

    Attributes:
        scaled: Whether a GradScaler scaled a loss.
        skipped: Optimizers, by id(), that one kept from stepping.
        stepped: Those that stepped.
    """

    scaled: bool = False
    skipped: frozenset[int] = frozenset()
    stepped: frozenset[int] = frozenset()


@dataclass
class StepTrace:
    """A step: all that was seen in it, in order.

    Attributes:
        observations: Every `stats` is readable.
        marks: By index of the observation; empty where no origin is wanted.
        tensors: Copies of tensors that were bad, or may have been, by index of the observation.
        unscanned: Parameters that are not looked at.
        inside_backward: What was found in the backward pass of compiled code, or None.
    """

    step: int
    observations: list[Observation]
    marks: Mapping[int, Mark] = field(default_factory=dict)
    outcome: Outcome = field(default_factory=Outcome)
    tensors: Mapping[int, Tensor] = field(default_factory=dict)
    inside_backward: Any = None
    unscanned: Sequence[str] = ()

    def mark_of(self, index: int) -> Mark:
        """What the observation at `index` belongs to; an empty mark if that was not followed."""
        return self.marks.get(index, _NO_MARK)


class CallTrace:
    """Follows the calls of a program and the tensors that pass between them.

    Args:
        observe_gradient: Called with (site, token, gradient) when the gradient of a tensor has been computed.
    """

    def __init__(self, observe_gradient: Callable[[Site, Token, Tensor], None]) -> None:
        self._observe_gradient = observe_gradient
        self._running: list[Call] = []
        self._tokens: Any = WeakTensorKeyDictionary()
        # A leaf may live on after disarming; its hook must not.
        self._on_leaves = KeptHooks()
        self._given_out: Any = WeakTensorKeyDictionary()
        self._step = 0
        self._criterion = self._beside = False
        self._marks: dict[int, Mark] = {}
        self._gradient_site = Site("", "bwd", "igrad", recorded=False, is_flow=False)

    @property
    def current(self) -> Call | None:
        return self._running[-1] if self._running else None

    def enter(self, layer: str, module_path: str, invocation: int, recompute: bool) -> Call:
        call = Call(layer, module_path, self.current, invocation=invocation, recompute=recompute)
        if call.parent is None and not recompute:
            call.criterion, call.runs_beside = self._criterion, self._beside
        self._running.append(call)
        return call

    def leave(self, call: Call) -> None:
        """`call` has ended, and with it what it called: an exception may have passed those by."""
        if call in self._running:
            del self._running[self._running.index(call) :]

    def mark(self, index: int | None, mark: Mark) -> None:
        if index is not None:
            self._marks[index] = mark

    def consumed(self, call: Call, tensor: Tensor) -> bool:
        """`call` takes in `tensor`, which requires grad; whether another, that does not enclose it, did so before."""
        token = self._token(tensor)
        if any(not call.is_within(earlier) for earlier in token.consumers):
            return True
        token.consumers.append(call)
        return False

    def tell_apart(self, call: Call, tensor: Tensor, outputs: list[Tensor], *, is_used_once: bool = False) -> None:
        """`call` has given out `outputs`, and may share `tensor` with others: look at its part of the gradient."""
        token = Token(0)
        token.consumers.append(call)
        observe, site = self._observe_gradient, self._gradient_site
        if not hook_contribution(tensor, outputs, lambda grad: observe(site, token, grad), is_used_once=is_used_once):
            self._token(tensor).consumers.append(call)

    def produced(self, call: Call, tensor: Tensor) -> None:
        """`call` gives out `tensor`, which requires grad."""
        self._token(tensor).producers.append(call)

    def given_out(self, tensor: Tensor) -> None:
        """A call that no other encloses has given out `tensor`."""
        self._given_out[tensor] = self._step

    def is_given_out(self, tensor: Tensor) -> bool:
        """Whether `tensor` comes from a model's call in this step."""
        return bool(self._given_out.get(tensor) == self._step)

    def derived(self, tensor: Tensor) -> None:
        """The code that runs now has taken a gradient, `tensor`, of which it may take one in turn."""
        self._token(tensor).producers.append(Call("autograd.grad", "autograd.grad", self.current))

    def take_marks(self) -> dict[int, Mark]:
        marks, self._marks = self._marks, {}
        return marks

    def outermost(self, step: int, *, criterion: bool, beside: bool) -> None:
        """A call that no other encloses begins, in `step`: of a model, of what computes a loss, or of something beside.

        Nothing else is running then, even if a call that KeyboardInterrupt ended looks as if it were.
        """
        self._running.clear()
        self._step = step
        self._criterion, self._beside = criterion, beside

    def close(self) -> None:
        self._on_leaves.clear()
        self._running.clear()
        self._tokens.clear()
        self._given_out.clear()
        self._marks.clear()

    def _token(self, tensor: Tensor) -> Token:
        token: Token | None = self._tokens.get(tensor)
        version = _version(tensor)
        # After an in-place operation the same object is another value, with another gradient.
        if token is None or token.version != version:
            token = Token(version)
            self._tokens[tensor] = token
            self._hook(tensor, token)
        token.renew(self._step)
        return token

    def _hook(self, tensor: Tensor, token: Token) -> None:
        observe, site = self._observe_gradient, self._gradient_site
        hang = self._on_leaves.put if tensor.is_leaf else hook_gradient
        hang(tensor, lambda grad: observe(site, token, grad))


def _version(tensor: Tensor) -> int:
    try:
        return tensor._version
    except RuntimeError:
        return 0  # an inference tensor keeps no count


def in_backward() -> bool:
    """Whether autograd is running, where activation checkpointing runs parts of a model again."""
    return torch._C._current_graph_task_id() != -1
