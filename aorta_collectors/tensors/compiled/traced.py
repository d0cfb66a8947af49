"""What torch.compile traces of ours: hooks of modules, and the program's own observe() and watch_grad().

All of it becomes part of the program's graphs. So it is plain, asks nothing of a module, for which the compiler would
compile a block of a model anew for each of its places, and looks into tuples, lists, dicts and dataclasses alone.
Elsewhere these functions do nothing.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor, nn

from aorta_collectors.tensors.compiled.operation import INPUT, KEYWORD, OUTPUT, USER, USER_GRADIENT

_DEPTH = 6


def before_call(_module: nn.Module, args: tuple[Any, ...]) -> None:
    """A global pre-hook."""
    if _is_compiled():
        hand_out(args, INPUT, "", "", _DEPTH)


def after_call(_module: nn.Module, _args: tuple[Any, ...], result: Any) -> None:
    """A global hook."""
    if _is_compiled():
        hand_out(result, OUTPUT, "", "", _DEPTH)


def after_call_with_keywords(_module: nn.Module, _args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
    """The same where inputs are observed: a global pre-hook is not told of keyword arguments."""
    if _is_compiled():
        for key, value in kwargs.items():
            hand_out(value, KEYWORD, key, "", _DEPTH)
        hand_out(result, OUTPUT, "", "", _DEPTH)


def observe(value: Any, name: str) -> None:
    """The program's observe() in compiled code."""
    if is_armed():
        hand_out(value, USER, "", name, _DEPTH)


def watch_grad(tensor: Any, name: str) -> None:
    """Its watch_grad()."""
    if is_armed() and isinstance(tensor, Tensor) and tensor.requires_grad:
        hand_out(tensor, USER_GRADIENT, "", name, 0)


def is_armed() -> bool:
    """Whether the process is observed. The compiler calls it, instead of tracing it."""
    from aorta_collectors.tensors.compiled.watch import CompiledTensors

    return CompiledTensors.find() is not None


is_armed._dynamo_marked_constant = True  # type: ignore[attr-defined]  # torch.compiler's function imports the compiler


def _is_compiled() -> bool:
    if not torch.compiler.is_dynamo_compiling():
        return False
    # Since torch 2.7; before that, what is exported is cleared of ours afterwards.
    return not (hasattr(torch.compiler, "is_exporting") and torch.compiler.is_exporting())


def hand_out(value: Any, kind: str, path: str, name: str, depth: int) -> None:
    """Each tensor of a value, under the path that observe.tensors gives it."""
    if type(value) is Tensor or type(value) is nn.Parameter:
        torch.ops.aorta_collectors.tensor(value, -1, -1, kind, path, name, False)
    elif depth > 0 and isinstance(value, (tuple, list)):
        if hasattr(value, "_fields"):
            for field in value._fields:
                hand_out(getattr(value, field), kind, _joined(path, f".{field}"), name, depth - 1)
        else:
            for index, part in enumerate(value):
                hand_out(part, kind, f"{path}[{index}]", name, depth - 1)
    elif depth > 0 and isinstance(value, dict):
        for key, part in value.items():
            if isinstance(key, (str, int)):
                hand_out(part, kind, f"{path}[{key!r}]", name, depth - 1)
    elif depth > 0 and dataclasses.is_dataclass(value):
        for attribute in dataclasses.fields(value):
            hand_out(getattr(value, attribute.name), kind, _joined(path, f".{attribute.name}"), name, depth - 1)


def _joined(path: str, step: str) -> str:
    return path + step if path else step[1:]
