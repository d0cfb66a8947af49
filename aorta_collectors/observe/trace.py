"""How the observations of a step hang together: which call each belongs to, and which calls share a tensor.

Kept only where the origin of a bad value is wanted. Calls and tokens hold no tensors, so that a trace may outlive them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary

from aorta_collectors.observe.contributions import hook_contribution
from aorta_collectors.observe.input_gradient import KeptHooks, hook_gradient
from aorta_collectors.observe.observation import Site
from aorta_collectors.observe.tensors import tensors_of_call

_MOST_ENDED = 100_000


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
        operations: Autograd's numbers of the operations that were recorded in it.
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
        "operations",
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
        begin = torch._C._autograd._get_sequence_nr()
        self.operations = range(begin, begin)

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

    def __init__(self, version: int, consumers: list[Call] | None = None) -> None:
        self.version = version
        self.step = 0
        self.consumers: list[Call] = consumers or []
        self.producers: list[Call] = []

    def renew(self, step: int) -> None:
        """Forget the calls of an earlier step: a tensor may be passed on in each step anew."""
        if self.step != step:
            self.step = step
            self.consumers, self.producers = [], []


class Mark(NamedTuple):
    """What an observation belongs to.

    Attributes:
        computed: Of a tensor with -Inf, whether they were computed, not written as a mask's are; None if not known.
    """

    call: Call | None = None
    token: Token | None = None
    computed: bool | None = None


class CallTrace:
    """Follows the calls of a program and the tensors that pass between them.

    Args:
        observe_gradient: Called with (site, token, gradient) when the gradient of a tensor has been computed.
    """

    def __init__(self, observe_gradient: Callable[[Site, Token, Tensor], None]) -> None:
        self._observe_gradient = observe_gradient
        self._running: list[Call] = []
        self._ended: list[Call] = []
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
        call.operations = range(call.operations.start, torch._C._autograd._get_sequence_nr())
        self._ended.append(call)
        if len(self._ended) > _MOST_ENDED:  # backward passes that run parts of a model again, without any new step
            del self._ended[: _MOST_ENDED // 2]

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

    @staticmethod
    def apart(call: Call) -> Token:
        """Of what `call` alone makes of a gradient."""
        return Token(0, [call])

    def consumed_apart(self, call: Call, tensor: Tensor) -> None:
        """`call` takes in `tensor`, whoever else does."""
        self._token(tensor).consumers.append(call)

    def tell_apart(self, call: Call, tensor: Tensor, outputs: list[Tensor]) -> None:
        """`call` has given out `outputs`, and shares `tensor` with others: look at its part of the gradient."""
        observe, site, token = self._observe_gradient, self._gradient_site, self.apart(call)
        if not hook_contribution(tensor, outputs, lambda grad: observe(site, token, grad)):
            self.consumed_apart(call, tensor)

    def produced(self, call: Call, tensor: Tensor) -> None:
        """`call` gives out `tensor`, which requires grad."""
        self._token(tensor).producers.append(call)

    def given_out(self, tensor: Tensor) -> None:
        """A call that no other encloses has given out `tensor`."""
        self._given_out[tensor] = self._step

    def is_given_out(self, tensor: Tensor) -> bool:
        """Whether `tensor` comes from a model's call in this step."""
        return bool(self._given_out.get(tensor) == self._step)

    def computes_loss(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: Callable[[], Mapping[str, Any] | None]
    ) -> bool:
        """Of a module without parameters, called beside the model: whether it takes what the model gave out."""
        if isinstance(module, nn.modules.loss._Loss):
            return True
        given = tensors_of_call(args, kwargs())
        return any(tensor.grad_fn is not None or self.is_given_out(tensor) for _, tensor in given)

    def derived(self, tensor: Tensor) -> None:
        """The code that runs now has taken a gradient, `tensor`, of which it may take one in turn."""
        self._token(tensor).producers.append(Call("autograd.grad", "autograd.grad", self.current))

    def exchange_marks(self, marks: dict[int, Mark]) -> dict[int, Mark]:
        """Have marks added to `marks` from now on; returns those made so far."""
        made, self._marks = self._marks, marks
        return made

    def outermost(self, step: int, *, criterion: bool, beside: bool) -> None:
        """A call that no other encloses begins, in `step`: of a model, of what computes a loss, or of something beside.

        Nothing else is running then, even if a call that KeyboardInterrupt ended looks as if it were.
        """
        self._running.clear()
        if step != self._step:
            self._ended.clear()
        self._step = step
        self._criterion, self._beside = criterion, beside

    def call_of(self, operation: int) -> Call | None:
        """The innermost call of this step that recorded the operation to which autograd gave this number."""
        found = [call for call in self._ended if operation in call.operations]
        return max(found, key=lambda call: call.depth, default=None)

    def close(self) -> None:
        self._ended.clear()
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
        hang(tensor, partial(observe, site, token))


def _version(tensor: Tensor) -> int:
    try:
        return tensor._version
    except RuntimeError:
        return 0  # an inference tensor keeps no count


def in_backward() -> bool:
    """Whether autograd is running, where activation checkpointing runs parts of a model again."""
    return torch._C._current_graph_task_id() != -1
