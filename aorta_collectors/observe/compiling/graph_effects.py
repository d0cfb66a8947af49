"""What running a captured graph a second time would do besides computing values.

torch.compile's graphs hold Python functions, tensor methods and registered operators. Which of their arguments they
write to follows from names, from operator schemas, and from the version counters of the stand-in tensors the graph was
traced with. Where in doubt an argument counts as written.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, fx

#: Their first argument is a graph that they run as it is; a replay runs it node by node.
INLINED = ("tag_activation_checkpoint", "wrap")

_AUGMENTED = frozenset(
    {"setitem", "iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "iand", "ior", "ixor", "imatmul"}
    | {"ilshift", "irshift"}
)
# Running statistics are written without any trace in a schema or a version counter.
_NORMS = ("batch_norm", "instance_norm")
_WRITING_GRAPH_OPS = ("triton_kernel", "auto_functionalized", "with_effects")
_TORCH = ("torch", "operator", "_operator", "builtins", "math")
# Collectives wait for other ranks, streams and events order somebody else's work, hooks and printing belong to the
# program, and transforms of torch.func keep a stack of levels that a failure would leave behind.
_REFUSED = (
    "torch.distributed",
    "c10d",
    "fsdp",
    "symm_mem",
    "torch._dynamo",
    "stream",
    "event",
    "print",
    "grad_increment_nesting",
    "jvp",
    "dual_level",
    "saved_tensors_hooks",
    "run_and_save_rng",
)


def name_of(node: fx.Node) -> str:
    """The operation's name: "log", "add_", "aten.add.Tensor"."""
    target = node.target
    if isinstance(target, str):
        return target
    if isinstance(target, torch._ops.OpOverload):
        return str(target)
    return str(getattr(target, "__name__", target))


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Tensors of a value, also those inside tuples, lists and dicts."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from tensors_in(part)
    elif isinstance(value, dict):
        for part in value.values():
            yield from tensors_in(part)


def storage_of(tensor: Tensor) -> int:
    """Tensors that share memory have the same number. A sparse one, without memory of its own, is known by itself."""
    return tensor.untyped_storage()._cdata if tensor.layout is torch.strided else id(tensor)


def obstacle(graph: fx.Graph) -> str | None:
    """Why running the graph once more could be noticed by the program, or None if it could not."""
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        module = getattr(node.target, "__module__", None) or ""
        if module and module.partition(".")[0] not in _TORCH:
            return f"{module}.{name_of(node)} is not torch's"
        if any(word in f"{module}.{name_of(node)}" for word in _REFUSED):
            return f"{name_of(node)} cannot be run twice"
    return None


def written_arguments(node: fx.Node) -> list[fx.Node]:
    """The nodes whose values the operation may write to, itself not counted."""
    written = _nodes(node.kwargs.get("out"))
    name = name_of(node)
    target = node.target
    if node.op == "call_module" or (
        isinstance(target, torch._ops.HigherOrderOperator) and any(word in name for word in _WRITING_GRAPH_OPS)
    ):
        return [*node.all_input_nodes]
    if isinstance(target, torch._ops.OpOverload):
        return [*written, *_by_schema(node, target)]
    if isinstance(target, torch._ops.OpOverloadPacket):
        overloads = (getattr(target, name) for name in target.overloads())  # type: ignore[no-untyped-call]
        return [*written, *(found for overload in overloads for found in _by_schema(node, overload))]
    if any(norm in name for norm in _NORMS):
        return [*written, *_nodes(node.args[1:5]), *_nodes(tuple(node.kwargs.values()))]
    underscore = name.endswith("_") and not name.endswith("__")
    if (underscore or name in _AUGMENTED or name == "__setitem__" or _is_inplace(node)) and node.args:
        written += _nodes(node.args[0])
    elif underscore or _is_inplace(node):
        written += node.all_input_nodes[:1]
    return written


def written_inputs(graph: fx.Graph, nested: Any) -> set[int]:
    """Positions of the graph's inputs that it may write to, directly or through a view.

    Args:
        graph: As traced, with the stand-in tensors in its nodes' meta data.
        nested: From the name of an attribute to the graph it holds, or None.
    """
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    storages: set[int] = set()
    direct: set[fx.Node] = set()
    for node in graph.nodes:
        if node.op == "placeholder" and any(_version(tensor) > 0 for tensor in _examples(node)):
            direct.add(node)
        elif node.op.startswith("call_"):
            written = written_arguments(node)
            inner = _inner_graph(node, nested)
            if inner is not None:
                positions = written_inputs(inner, nested)
                written += [arg for i, arg in enumerate(node.args[1:]) if i in positions and isinstance(arg, fx.Node)]
            direct.update(written)
    for node in direct:
        storages.update(storage_of(tensor) for tensor in _examples(node))
    return {
        position
        for position, node in enumerate(inputs)
        if node in direct or any(storage_of(tensor) in storages for tensor in _examples(node))
    }


def _inner_graph(node: fx.Node, nested: Any) -> fx.Graph | None:
    if name_of(node) not in INLINED or not node.args or not isinstance(node.args[0], fx.Node):
        return None
    found: fx.Graph | None = nested(node.args[0].target)
    return found


def _by_schema(node: fx.Node, overload: Any) -> Iterator[fx.Node]:
    for position, argument in enumerate(overload._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            given = node.args[position] if position < len(node.args) else node.kwargs.get(argument.name)
            yield from _nodes(given)


def _is_inplace(node: fx.Node) -> bool:
    """Whether a function is called with a true `inplace`, by name or by position."""
    if node.kwargs.get("inplace", False) is not False:
        return True
    position = _inplace_position(node.target) if node.op == "call_function" and callable(node.target) else None
    return position is not None and len(node.args) > position and node.args[position] is not False


def _inplace_position(function: Any) -> int | None:
    try:
        return list(inspect.signature(function).parameters).index("inplace")
    except (ValueError, TypeError):  # a builtin without signature, or no such parameter
        return None


def _nodes(argument: Any) -> list[fx.Node]:
    if isinstance(argument, fx.Node):
        return [argument]
    if isinstance(argument, (tuple, list)):
        return [node for part in argument for node in _nodes(part)]
    return []


def _examples(node: fx.Node) -> Iterable[Tensor]:
    return tensors_in(node.meta.get("example_value"))


def _version(tensor: Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version
