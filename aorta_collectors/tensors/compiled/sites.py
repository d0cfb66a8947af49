"""Where a captured graph hands out tensors, and which of these places are kept in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from torch import fx

from aorta_collectors.observe.compiling.graph_effects import INLINED, name_of
from aorta_collectors.tensors.compiled.operation import KEYWORD, OUTPUT, USER, USER_GRADIENT, is_operation

_OF_PROGRAM = (USER, USER_GRADIENT)


class Site(NamedTuple):
    """A place in a graph where a tensor is handed out.

    Attributes:
        kind, path, name: As the operation has them.
        module: An expression for the module whose tensor it is, such as "L['self'].layers.0"; "" for the program's own.
        argument: Which input of the graph the tensor is; None for what is computed there.
    """

    kind: str
    path: str
    name: str
    module: str
    argument: int | None

    @property
    def is_of_program(self) -> bool:
        return self.kind in _OF_PROGRAM


class Found(NamedTuple):
    """
    Attributes:
        node: Of the graph, or of one inside it.
        is_inside: Whether it is in a graph that an operation runs as it likes: a branch, the body of a loop.
    """

    site: Site
    node: fx.Node
    is_inside: bool


def sites_of(module: fx.GraphModule) -> list[Found]:
    """All of a graph as captured, in order."""
    return list(_sites(module, is_outermost=True, is_inside=False))


def modules_of(module: fx.GraphModule) -> list[str]:
    """Expressions for the modules whose code is part of a graph, in order."""
    stacks = [_stack(node) for node in module.graph.nodes if node.op != "placeholder"]
    return list(dict.fromkeys(expression for stack in stacks for expression in stack.values()))


def settle(
    module: fx.GraphModule, found: list[Found], is_kept: Callable[[Found], bool], region: int, *, follow: bool
) -> list[Site]:
    """Number the sites that are kept, and take the others out of the graph.

    Args:
        follow: Whether gradients of what modules return are handed out.
    """
    kept: list[Site] = []
    for each in found:
        site, node = each.site, each.node
        if not is_kept(each):
            node.graph.erase_node(node)
            continue
        if site.kind == KEYWORD:
            _move_to_begin(node)
        # That of an input is watched at the tensor that comes in, with all of its uses.
        followed = site.argument is None and (site.kind == USER_GRADIENT or (follow and site.kind == OUTPUT))
        node.args = (node.args[0], region, len(kept), site.kind, site.path, site.name, followed)
        kept.append(site)
    if found:
        _recompile(module)
    return kept


def clear(module: fx.GraphModule) -> None:
    """Take all of ours out of a graph."""
    found = sites_of(module)
    for each in found:
        each.node.graph.erase_node(each.node)
    if found:
        _recompile(module)


def _sites(module: fx.GraphModule, *, is_outermost: bool, is_inside: bool) -> Iterator[Found]:
    inputs = [node for node in module.graph.nodes if node.op == "placeholder"] if is_outermost else []
    runs = {node: _is_run_in_place(node) for node in module.graph.nodes if node.op == "get_attr"}
    for node in list(module.graph.nodes):
        if node.op == "get_attr":
            inner = _attribute(module, str(node.target))
            if isinstance(inner, fx.GraphModule):
                yield from _sites(inner, is_outermost=False, is_inside=is_inside or not runs[node])
        elif node.op == "call_function" and is_operation(node.target):
            value, _region, _site, kind, path, name, _follow = node.args
            argument = inputs.index(value) if value in inputs else None
            stack = list(_stack(node).values())
            expression = "" if kind in _OF_PROGRAM or not stack else stack[-1]
            yield Found(Site(str(kind), str(path), str(name), expression, argument), node, is_inside)


def _is_run_in_place(node: fx.Node) -> bool:
    return all(name_of(user) in INLINED for user in node.users)


def _attribute(module: fx.GraphModule, target: str) -> Any:
    value: Any = module
    for part in target.split("."):
        value = getattr(value, part, None)
    return value


def _stack(node: fx.Node) -> dict[str, str]:
    """By call, the expressions of the modules in whose code a node lies, the outermost first."""
    return {str(call): str(entry[0]) for call, entry in (node.meta.get("nn_module_stack") or {}).items()}


def _move_to_begin(node: fx.Node) -> None:
    """Hand out an argument before the call writes to it: the hook that sees it comes when the call has ended."""
    call = next(reversed(_stack(node)), None)
    value = node.args[0]
    first = before = node
    while before.prev is not value and before.prev.op not in ("root", "placeholder") and call in _stack(before.prev):
        first = before = before.prev
    if first is not node:
        first.prepend(node)


def _recompile(module: fx.GraphModule) -> None:
    for inner in module.modules():
        if isinstance(inner, fx.GraphModule):
            inner.recompile()
