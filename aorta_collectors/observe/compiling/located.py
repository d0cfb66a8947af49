"""The operation that made a bad value, and the two ways to find it in a graph that is run again.

Forward, a value has a level: CLEAN; PUT for -Inf that was written there (masks) or came in; BAD for NaN, +Inf, and -Inf
that was computed. Badness is followed back from the result through values of the same or a worse level. So softmax over
nothing but a mask's -Inf is where its NaN came into being, log(0) is where the NaN of `0 * log(0)` did, and what was
bad in between and did not reach the result is not named.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx, nn

from aorta_collectors.observe.compiling.captured import Captured
from aorta_collectors.observe.compiling.graph_effects import name_of, storage_of, tensors_in, written_arguments
from aorta_collectors.observe.compiling.replay import Replay
from aorta_collectors.observe.compiling.scope import Scope
from aorta_collectors.observe.limits import Limits
from aorta_collectors.observe.readable import plain_values
from aorta_collectors.observe.reduce import Stats, reduce_now

CLEAN, PUT, BAD = range(3)
_NO_LIMITS = Limits(huge=math.inf)


@dataclass(frozen=True, eq=False)
class Located:
    """The operation that made a bad value.

    Attributes:
        module_path: The innermost module whose code the operation is part of, below the compiled one; "" for that
            itself, and for the code of a compiled function.
        module: That module; None where it is not known, or the code belongs to none.
        op: "log", "linear", "mul_"; "input" where the value came into the graph with an input or a constant.
        kind: The worst of its values: "nan", "inf" or "-inf".
        by_design: Whether it is nothing but -Inf that was written there, as masks are.
        where: Source line, "model.py:12 in forward: x = torch.log(x)"; of an input, the expression that names it.
        shape, dtype, stats: Of the bad tensor.
        input_abs_max: The largest finite magnitude among what the operation was given, None if there is none.
    """

    module_path: str
    module: nn.Module | None
    op: str
    kind: str
    by_design: bool
    where: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    stats: Stats
    input_abs_max: float | None


def is_bad(value: Any) -> bool:
    """Whether a tensor, or one inside tuples, lists and dicts, has a NaN or an infinity of either sign.

    Only floating-point and complex tensors can; what cannot be read (empty, meta) counts as clean.
    """
    return any(_look(tensor) is not None for tensor in tensors_in(value))


def _look(tensor: Tensor) -> tuple[Stats, str] | None:
    """Counts and kind of a bad tensor, None of a clean one."""
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return None
    plain, _ = plain_values(tensor)
    stats = reduce_now(plain, _NO_LIMITS)[2] if plain is not None else None
    if stats is None:
        return None
    if stats.nan_count:
        return stats, "nan"
    return stats, "-inf" if stats.only_negative_infinite else "inf"


class Mark(NamedTuple):
    """What is known of a node's value.

    `origin` made what is bad in it, as the `time`-th operation; `versions` tell when the value was written to since.
    """

    level: int = CLEAN
    time: int = 0
    origin: Located | None = None
    versions: tuple[int, ...] = ()


class ForwardReplay(Replay):
    """Marks each value with the operation that its badness goes back to."""

    def __init__(self, shared: set[int], scope: Scope) -> None:
        super().__init__(shared)
        self._scope = scope
        self._time = 0
        self._marks: dict[fx.Node, Mark] = {}
        self._by_storage: dict[int, Mark] = {}
        self._handed: list[Mark] = []

    def locate(self, program: Captured, args: Sequence[Any], written: set[int]) -> Located | None:
        """The operation behind a bad result, or behind a bad value written to an input; None if there is neither."""
        _, results = self.run(program, args)
        inputs = [node for node in program.graph.nodes if node.op == "placeholder"]
        results.update((inputs[position], args[position]) for position in written)
        for node, value in results.items():
            self._look_again(node, value)
        marks = [mark for node in results if (mark := self._marks.get(node, Mark())).level]
        return min(marks, key=lambda mark: (-mark.level, mark.time)).origin if marks else None

    def given(self, node: fx.Node, value: Any) -> None:
        self._time += 1
        if self._handed:
            self._marks[node] = self._handed.pop(0)._replace(versions=_versions(value))
        else:
            self._marks[node] = self._judge(node, value, "input")

    def before(self, node: fx.Node, env: Mapping[fx.Node, Any]) -> None:
        self._time += 1
        for source in node.all_input_nodes:
            self._look_again(source, env[source])

    def after(self, node: fx.Node, env: Mapping[fx.Node, Any], value: Any) -> None:
        sources = [self._marks.get(source, Mark()) for source in node.all_input_nodes]
        used = [env[source] for source in node.all_input_nodes]
        computed = not (_mentions_minus_inf(node) or any(source.level == PUT for source in sources))
        self._marks[node] = self._judge(node, value, name_of(node), sources, used, computed)
        for written in written_arguments(node):
            self._marks[written] = self._judge(node, env[written], name_of(node), sources, used, computed)

    def inlined(self, node: fx.Node, inner: Captured, args: tuple[Any, ...]) -> Any:
        self._handed = [
            self._marks.get(arg, Mark()) if isinstance(arg, fx.Node) else Mark() for arg in node.args[1 : len(args) + 1]
        ]
        value, results = self.run(inner, args)
        self._handed = []
        marks = (self._marks.get(result, Mark()) for result in results)
        worst = max(marks, key=lambda mark: (mark.level, -mark.time), default=Mark())
        self._marks[node] = worst._replace(versions=_versions(value))
        return value

    def _look_again(self, node: fx.Node, value: Any) -> None:
        """A value may have been written to since, by way of another view of its memory."""
        mark = self._marks.get(node)
        versions = _versions(value)
        if mark is None or self.in_vmap or (mark.versions == versions and -1 not in versions):
            return
        bad = _worst(value)
        if bad is None:
            self._marks[node] = Mark(versions=versions)
        elif mark.level == CLEAN:
            culprit = self._by_storage.get(storage_of(bad)) or self._judge(node, value, name_of(node))
            self._marks[node] = culprit._replace(versions=versions)

    def _judge(
        self,
        node: fx.Node,
        value: Any,
        op: str,
        sources: Sequence[Mark] = (),
        used: Sequence[Any] = (),
        computed: bool = False,
    ) -> Mark:
        if self.in_vmap:  # what comes out of it is looked at when it is used
            worst = max(sources, key=lambda mark: mark.level, default=Mark())
            return worst._replace(versions=(-1,))
        versions = _versions(value)
        bad = _worst(value)
        seen = _look(bad) if bad is not None else None
        if bad is None or seen is None:
            return Mark(versions=versions)
        level = BAD if computed or seen[1] != "-inf" else PUT
        earlier = [source for source in sources if source.level >= level]
        if earlier:
            mark = min(earlier, key=lambda mark: mark.time)._replace(versions=versions)
        else:
            mark = Mark(level, self._time, _describe(self._scope, node, op, bad, level == PUT, used), versions)
        self._by_storage[storage_of(bad)] = mark
        return mark


class BackwardReplay(Replay):
    """Runs a graph for autograd, and watches the gradients that each of its operations receives and hands on."""

    def __init__(self, shared: set[int], scope: Scope) -> None:
        super().__init__(shared)
        self._scope = scope
        # Keeps torch's nodes alive: an object that is made anew at each access has another identity.
        self._known: set[Any] = set()
        self._found: Located | None = None

    def locate(
        self, program: Captured, args: Sequence[Any], leaves: Sequence[Tensor], grads: Sequence[Tensor | None]
    ) -> Located | None:
        """The first operation, in the order of the backward pass, that got clean gradients and made a bad one.

        Args:
            args: Apart from the program's autograd graph.
            leaves: What of it gets a gradient; `args` are these or made of these.
            grads: One for each part of the result, None where it gets none.
        """
        result, _ = self.run(program, args)
        outputs = [output if isinstance(output, Tensor) else None for output in result]
        pairs = [
            (output, grad)
            for output, grad in zip(outputs, grads, strict=True)
            if output is not None and grad is not None and output.requires_grad
        ]
        if pairs and leaves:
            torch.autograd.grad([output for output, _ in pairs], leaves, [grad for _, grad in pairs], allow_unused=True)
        return self._found

    def grad_mode(self, enabled: bool) -> None:
        torch._C._set_grad_enabled(enabled)

    def given(self, node: fx.Node, value: Any) -> None:
        self._known.update(tensor.grad_fn for tensor in tensors_in(value) if tensor.grad_fn is not None)

    def after(self, node: fx.Node, env: Mapping[fx.Node, Any], value: Any) -> None:
        tensors = [*tensors_in(value), *tensors_in([env[written] for written in written_arguments(node)])]
        new = [tensor.grad_fn for tensor in tensors]
        while new:
            function = new.pop()
            if function is None or function in self._known or function.name().endswith("AccumulateGrad"):
                continue
            self._known.add(function)
            function.register_hook(functools.partial(self._passed, node))
            new += [following for following, _ in function.next_functions]

    def _passed(self, node: fx.Node, made: Any, received: Any) -> None:
        if self._found is None and is_bad(made) and not is_bad(received):
            bad = _worst(made)
            if bad is not None:
                self._found = _describe(self._scope, node, name_of(node), bad, False, received)


def _describe(scope: Scope, node: fx.Node, op: str, bad: Tensor, by_design: bool, used: Any) -> Located:
    place = scope.place(str(node.meta["place"]))
    seen = _look(bad)
    assert seen is not None
    largest = max((found for tensor in tensors_in(used) if (found := _abs_max(tensor)) is not None), default=None)
    shape, where = tuple(bad.shape), str(node.meta["where"])
    return Located(place.path, place.module, op, seen[1], by_design, where, shape, bad.dtype, seen[0], largest)


def _worst(value: Any) -> Tensor | None:
    """The first tensor with NaN or +Inf, or else the first with -Inf, or None."""
    minus_inf = None
    for tensor in tensors_in(value):
        seen = _look(tensor)
        if seen is not None and seen[1] != "-inf":
            return tensor
        if seen is not None and minus_inf is None:
            minus_inf = tensor
    return minus_inf


def _abs_max(tensor: Tensor) -> float | None:
    plain = plain_values(tensor)[0] if tensor.is_floating_point() or tensor.is_complex() else None
    if plain is None:
        return None
    low, high, stats = reduce_now(plain, _NO_LIMITS)
    return (stats or Stats.clean(plain.numel(), low, high)).finite_abs_max


def _mentions_minus_inf(node: fx.Node) -> bool:
    found: list[Any] = []
    fx.node.map_aggregate((node.args, node.kwargs), found.append)
    return any(isinstance(part, float) and part == -math.inf for part in found)


def _versions(value: Any) -> tuple[int, ...]:
    """Counters that change when a tensor is written to; -1 for an inference tensor, which has none."""
    return tuple(-1 if tensor.is_inference() else tensor._version for tensor in tensors_in(value))
