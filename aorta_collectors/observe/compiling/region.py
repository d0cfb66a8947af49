"""One compiled region: the graph that torch.compile captured, and finding in it what made a bad value."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import CodeType
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx, nn

from aorta_collectors.observe.compiling.captured import Captured
from aorta_collectors.observe.compiling.graph_effects import storage_of, tensors_in, written_inputs
from aorta_collectors.observe.compiling.located import BackwardReplay, ForwardReplay, Located
from aorta_collectors.observe.compiling.scope import Scope, current_scope, function_name

_PLAIN = (Tensor, nn.Parameter)
_DEVICES = ("cpu", "cuda")


class Inputs(NamedTuple):
    """What a region was given in one run.

    Attributes:
        values: As they were before the run: copies of tensors that the graph writes to, all others the program's own.
        complete: Whether all that was to be copied was; a replay needs it.
        random: States of the random generators before the run: the CPU's under None, a GPU's under its index.
    """

    values: tuple[Any, ...]
    complete: bool
    random: Mapping[int | None, Tensor]


class Region:
    """A graph that was compiled as one; a model has several where the capture breaks or shapes differ.

    Several modules of one kind may share a region.

    Attributes:
        label: "forward (model.py:12)", the function it was captured from.
        failure: Why the last `locate` or `locate_backward` could not look; None if it did.
    """

    def __init__(self, module: fx.GraphModule, code: CodeType | None) -> None:
        self._code = code
        where = f"{code.co_filename.rpartition('/')[2]}:{code.co_firstlineno}" if code else ""
        self.label = f"{function_name(code)} ({where})" if code else ""
        self.failure: str | None = None
        self._program = Captured(module)
        self._written = written_inputs(module.graph, lambda name: _inner(module, name))
        self._autocast = {device: _autocast(device) for device in _DEVICES}

    def scope(self) -> Scope:
        """The modules that the region's code is run for, asked during a run, so from `ran`.

        Its `own` is the module whose method was captured. A plain function has none, and may well be part of a module's
        code all the same: a graph break inside a helper makes it one. Its module is the one that is running.
        """
        return current_scope(self._code)

    def before(self, args: Sequence[Any], copy_limit: int) -> Inputs:
        """Keep what a replay will need: to be called right before a run with `args`."""
        written = [args[i] for i in self._written if isinstance(args[i], Tensor)]
        complete = sum(tensor.nbytes for tensor in written) <= copy_limit
        random: dict[int | None, Tensor] = {None: torch.get_rng_state()}
        for tensor in args:
            if isinstance(tensor, Tensor) and tensor.is_cuda and tensor.device.index not in random:
                random[tensor.device.index] = torch.cuda.get_rng_state(tensor.device)
        return Inputs(self._copied(args) if complete else tuple(args), complete, random)

    def given(self, inputs: Inputs) -> list[tuple[str, Tensor]]:
        """(expression, tensor) of what a run was given, parameters left out."""
        names = [str(node.meta["where"]) for node in self._program.graph.nodes if node.op == "placeholder"]
        return [
            (name, value)
            for name, value in zip(names, inputs.values, strict=False)
            if isinstance(value, Tensor) and not isinstance(value, nn.Parameter)
        ]

    def locate(self, inputs: Inputs, scope: Scope | None = None) -> Located | None:
        """Which operation a bad output goes back to. To be asked when the inputs were clean and an output is not.

        The graph is run again in eager mode, without autograd, at about the cost of an eager forward, and each value is
        read. The program's tensors, gradients and random numbers stay as they are. Never raises.

        Args:
            scope: Of the run, where it is over; without it modules are known by their path only.

        Returns:
            None if the replay's outputs are clean, or `failure` tells why there was none.
        """

        def look(values: Sequence[Any], shared: set[int]) -> Located | None:
            detached = [value.detach() if isinstance(value, Tensor) else value for value in values]
            with torch.no_grad():
                return ForwardReplay(shared, found).locate(self._program, detached, self._written)

        found = scope or self.scope()
        return self._guarded(look, inputs)

    def locate_backward(
        self, inputs: Inputs, grad_outputs: Sequence[Tensor | None], scope: Scope | None = None
    ) -> Located | None:
        """Which operation, in the order of the backward pass, got clean gradients and handed on a bad one.

        Args:
            inputs: With unchanged tensors, so before the optimizer's step.
            grad_outputs: One for each output of the region, None for those without. Finite, or nothing is found.
            scope: As for `locate`.

        Returns:
            `Located` of the gradient; else as `locate`.
        """

        def look(values: Sequence[Any], shared: set[int]) -> Located | None:
            with torch.enable_grad():
                apart = [_apart(value) for value in values]
                leaves = [value for value in apart if isinstance(value, Tensor) and value.requires_grad]
                # Autograd refuses to have a leaf written to.
                args = [
                    value.clone() if position in self._written and isinstance(value, Tensor) else value
                    for position, value in enumerate(apart)
                ]
                return BackwardReplay(shared, found).locate(self._program, args, leaves, grad_outputs)

        found = scope or self.scope()
        return self._guarded(look, inputs)

    def _guarded(self, look: Callable[[Sequence[Any], set[int]], Located | None], inputs: Inputs) -> Located | None:
        self.failure = self._obstacle(inputs)
        if self.failure is not None:
            return None
        try:
            values = self._copied(inputs.values)  # a second question finds them unchanged
            kept = [value for position, value in enumerate(values) if position not in self._written]
            shared = {storage_of(tensor) for tensor in tensors_in([kept, list(_constants(self._program))])}
            with _random(inputs.random), self._surroundings():
                return _uncompiled(look)(values, shared)
        except Exception as error:
            self.failure = f"{type(error).__name__}: {error}"
            return None

    def _obstacle(self, inputs: Inputs) -> str | None:
        if self._program.obstacle is not None:
            return self._program.obstacle
        if not inputs.complete:
            return "the region writes to inputs too large to copy"
        for value in inputs.values:
            if isinstance(value, Tensor):
                if type(value) not in _PLAIN:
                    return f"an input is a {type(value).__name__}"
                if value.device.type not in _DEVICES:
                    return f"an input is on the device {value.device}"
            elif value is not None and not isinstance(value, (bool, int, float, complex)):
                return f"an input is a {type(value).__name__}"
        return None

    def _copied(self, args: Sequence[Any]) -> tuple[Any, ...]:
        """`args`, with copies of the tensors that the graph writes to. Those that share memory still do."""
        memory: dict[int, Any] = {}
        tensors = [arg for position, arg in enumerate(args) if position in self._written and isinstance(arg, Tensor)]
        keys = [storage_of(tensor) for tensor in tensors]
        copies: dict[int, Tensor] = {}
        for tensor, key in zip(tensors, keys, strict=True):
            if keys.count(key) > 1 and tensor.layout is torch.strided:
                if key not in memory:
                    memory[key] = tensor.untyped_storage().clone()  # type: ignore[no-untyped-call]
                copy = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
                copy.set_(memory[key], tensor.storage_offset(), tensor.size(), tensor.stride())
            else:
                copy = tensor.detach().clone()
            copies[id(tensor)] = copy.requires_grad_(tensor.requires_grad)
        return tuple(copies.get(id(arg), arg) for arg in args)

    @contextlib.contextmanager
    def _surroundings(self) -> Iterator[None]:
        """Autocast as it was when the region was compiled, which it is at each of its runs."""
        with contextlib.ExitStack() as stack:
            for device, (enabled, dtype) in self._autocast.items():
                if (enabled, dtype) != _autocast(device):
                    stack.enter_context(torch.autocast(device, dtype=dtype, enabled=enabled))
            yield


def _uncompiled(look: Callable[..., Located | None]) -> Callable[..., Located | None]:
    """`look`, so that torch.compile leaves it alone where it follows the frames of the program that led here."""
    found: Callable[..., Located | None] = torch.compiler.disable(look)  # type: ignore[no-untyped-call]
    return found


@contextlib.contextmanager
def _random(states: Mapping[int | None, Tensor]) -> Iterator[None]:
    """Random generators as they were in `states`, and afterwards as they are now."""
    devices = [index for index in states if index is not None]
    with torch.random.fork_rng(devices):
        for index, state in states.items():
            if index is None:
                torch.set_rng_state(state)
            else:
                torch.cuda.set_rng_state(state, index)
        yield


def _autocast(device: str) -> tuple[bool, torch.dtype]:
    return torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)


def _apart(value: Any) -> Any:
    """A tensor over the same memory that autograd knows nothing of yet."""
    return value.detach().requires_grad_(value.requires_grad) if isinstance(value, Tensor) else value


def _inner(module: fx.GraphModule, name: str) -> fx.Graph | None:
    inner = getattr(module, name, None)
    return inner.graph if isinstance(inner, fx.GraphModule) else None


def _constants(program: Captured) -> Iterator[Tensor]:
    for value in program.attributes.values():
        if isinstance(value, Captured):
            yield from _constants(value)
        else:
            yield from tensors_in(value)
