"""Running a captured graph again, operation by operation, without a trace in the program.

Tensors of the program are read, detached from autograd, and never written; autocast and other state that the graph
switches on is switched off again whatever happens. Randomness and what surrounded the first run is the caller's to
provide.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn

from aorta_collectors.observe.compiling.captured import Captured
from aorta_collectors.observe.compiling.graph_effects import INLINED, name_of, storage_of, tensors_in, written_arguments

_EXITS = {
    "_enter_autocast": "_exit_autocast",
    "_enter_inference_mode": "_exit_inference_mode",
    "_vmap_increment_nesting": "_vmap_decrement_nesting",
}


class NotReplayable(Exception):
    """The graph would write to a tensor of the program."""


class Replay:
    """One run of a graph. Subclasses look at each operation.

    Args:
        shared: Storages that must not be written.

    Attributes:
        in_vmap: Whether the operation runs inside torch.vmap, where a tensor's values cannot be read.
    """

    def __init__(self, shared: set[int]) -> None:
        self._shared = shared
        self._vmaps = 0

    @property
    def in_vmap(self) -> bool:
        return self._vmaps > 0

    def run(self, program: Captured, args: Sequence[Any]) -> tuple[Any, dict[fx.Node, Any]]:
        """Returns the graph's result, and the nodes it is made of with their values.

        Raises:
            NotReplayable: An operation would write to shared storage; it has not run.
            Exception: Whatever an operation raises.
        """
        nodes = list(program.graph.nodes)
        last = {source: node for node in nodes for source in node.all_input_nodes}
        inputs = iter(args)
        env: dict[fx.Node, Any] = {}
        entered = 0
        for index, node in enumerate(nodes):
            if node.op == "output":
                result = fx.node.map_arg(node.args[0], env.__getitem__)
                return result, {source: env[source] for source in node.all_input_nodes}
            try:
                self._node(program, node, env, inputs)
            except BaseException:
                _leave(nodes[index:], env, entered)
                raise
            name = name_of(node)
            entered += (name in _EXITS) - (name in _EXITS.values())
            for used in (*node.all_input_nodes, node):
                if last.get(used, node) is node:
                    env.pop(used, None)  # as early as the program freed it
        raise NotReplayable("the graph has no output")

    # -- what subclasses look at

    def given(self, node: fx.Node, value: Any) -> None:
        """An input or a constant."""

    def before(self, node: fx.Node, env: Mapping[fx.Node, Any]) -> None:
        """An operation is about to run; `env` has the values of the nodes it uses."""

    def after(self, node: fx.Node, env: Mapping[fx.Node, Any], value: Any) -> None:
        """It has run and made `value`."""

    def inlined(self, node: fx.Node, inner: Captured, args: tuple[Any, ...]) -> Any:
        """An inner graph is to be run node by node."""
        return self.run(inner, args)[0]

    def grad_mode(self, enabled: bool) -> None:
        """The program switches recording for autograd on or off."""

    # -- one node

    def _node(self, program: Captured, node: fx.Node, env: dict[fx.Node, Any], inputs: Any) -> None:
        if node.op == "placeholder":
            env[node] = next(inputs)
            self.given(node, env[node])
        elif node.op == "get_attr":
            value = program.attributes[str(node.target)]
            env[node] = value if isinstance(value, Captured) else _detached(value)
            if not isinstance(value, Captured):
                self.given(node, env[node])
        else:
            self._operation(program, node, env)

    def _operation(self, program: Captured, node: fx.Node, env: dict[fx.Node, Any]) -> None:
        self._refuse_writing(node, env)
        self.before(node, env)
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), env.__getitem__)
        name = name_of(node)
        if node.target is torch._C._set_grad_enabled:
            self.grad_mode(bool(args[0]))
            env[node] = None
        elif name in INLINED and args and isinstance(args[0], Captured):
            env[node] = self.inlined(node, args[0], args[1:])
        else:
            args, kwargs = fx.node.map_aggregate((args, kwargs), _original)
            if node.op == "call_method":
                env[node] = getattr(args[0], str(node.target))(*args[1:], **kwargs)
            elif node.op == "call_module":
                # Not called: hooks of the program would run.
                env[node] = _apart(program.attributes[str(node.target)]).forward(*args, **kwargs)
            else:
                env[node] = node.target(*args, **kwargs)  # type: ignore[operator]
            self._vmaps += (name == "_vmap_increment_nesting") - (name == "_vmap_decrement_nesting")
            self.after(node, env, env[node])

    def _refuse_writing(self, node: fx.Node, env: Mapping[fx.Node, Any]) -> None:
        for written in written_arguments(node):
            if any(storage_of(tensor) in self._shared for tensor in tensors_in(env[written])):
                raise NotReplayable(f"{name_of(node)} would write to a tensor of the program")


def _leave(rest: Sequence[fx.Node], env: Mapping[fx.Node, Any], entered: int) -> None:
    """After a failure, run the exits of what the graph had entered: torch keeps these states beyond it."""
    not_entered = 0
    for node in rest:
        name = name_of(node)
        if name in _EXITS:
            not_entered += 1
        elif name in _EXITS.values():
            if not_entered:
                not_entered -= 1
            elif entered:
                entered -= 1
                node.target(*fx.node.map_arg(node.args, env.get))  # type: ignore[operator]


def _original(value: Any) -> Any:
    return value.original if isinstance(value, Captured) else value


def _detached(value: Any) -> Any:
    return value.detach() if isinstance(value, Tensor) else value


def _apart(module: nn.Module) -> nn.Module:
    """A module that computes the same and shares no state that computing changes. torch 2.4 has modules in graphs."""
    apart = object.__new__(type(module))
    vars(apart).update(vars(module))
    parts: dict[str, Any] = {
        "_parameters": {name: _detached(param) for name, param in module._parameters.items()},
        "_buffers": {name: None if buf is None else buf.detach().clone() for name, buf in module._buffers.items()},
        "_modules": {name: None if part is None else _apart(part) for name, part in module._modules.items()},
    }
    vars(apart).update(parts)
    return apart
