"""A captured graph, kept as it was before a compiler changes it."""

from __future__ import annotations

import os
import re
from itertools import pairwise
from typing import Any

import torch
from torch import fx

from aorta_collectors.observe.compiling.graph_effects import obstacle

_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (.+)')


class Captured:
    """A copy of a graph without the stand-in tensors it was traced with.

    Attributes:
        graph: Each node's meta data holds "place", an expression for the module whose code it is part of, "" for the
            captured function's own; and "where", its source line, or the expression of an input.
        attributes: What get_attr and call_module nodes refer to; a `Captured` for an inner graph.
        original: The module the graph was copied from.
        obstacle: Why the graph must not be run a second time, or None.
    """

    def __init__(self, module: fx.GraphModule) -> None:
        self.original = module
        self.graph = fx.Graph()
        copies: dict[fx.Node, fx.Node] = {}
        self.graph.output(self.graph.graph_copy(module.graph, copies))
        for node, copy in copies.items():
            stack = list((node.meta.get("nn_module_stack") or {}).values())
            copy.meta = {"place": str(stack[-1][0]) if stack else "", "where": _where(node)}
        self.attributes: dict[str, Any] = {}
        self.obstacle = obstacle(module.graph)
        for node in module.graph.nodes:
            if node.op not in ("get_attr", "call_module"):
                continue
            value: Any = module
            for part in str(node.target).split("."):
                value = getattr(value, part)
            if node.op == "get_attr" and isinstance(value, fx.GraphModule):
                value = Captured(value)
                self.obstacle = self.obstacle or value.obstacle
            self.attributes[str(node.target)] = value


def _where(node: fx.Node) -> str:
    """The source line of an operation, "model.py:12 in forward: x = torch.log(x)", or what an input is."""
    if node.op == "placeholder":
        source = getattr(node.meta.get("grapharg"), "source", None)
        name = getattr(source, "name", "")
        return str(name() if callable(name) else name)
    lines = [line.strip() for line in str(node.meta.get("stack_trace") or "").splitlines()]
    frames = [(found, code) for line, code in pairwise(lines) if (found := _FRAME.match(line))]
    # torch's own lines, such as those of vmap, tell a reader of the program nothing.
    torchs = os.path.dirname(torch.__file__) + os.sep
    for found, code in reversed([frame for frame in frames if not frame[0][1].startswith(torchs)] or frames):
        return f"{found[1]}:{found[2]} in {found[3]}: {code}"
    return ""
