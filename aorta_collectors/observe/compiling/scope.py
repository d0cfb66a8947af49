"""Which modules the names in a captured function stand for, in the run that is going on.

torch uses compiled code again for another module of the same kind, such as the next block of a stack. So what `self`
was when the code was captured says nothing about a later run; the variables of the frame that runs it do.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from types import CodeType, FrameType
from typing import Any, NamedTuple

from torch import nn

_TOKEN = re.compile(r"\.(\w+)|\[(?:'([^']*)'|\"([^\"]*)\"|(\d+))\]")
_BASE = re.compile(r"\s*([LG])\['([^']+)'\]")
_RESUMED = re.compile(r"torch_dynamo_resume_in_(.+)_at_\d+")
# Steps in an expression that are no part of a module's name.
_SILENT = ("_orig_mod", "_modules")
# Between the compiled code and a question about it lie a few frames of torch's and of ours.
_DEPTH = 40


class Place(NamedTuple):
    """A module whose code is run.

    Attributes:
        path: Below the module that was compiled, "" for itself, and for the code of a compiled function.
        module: None where it is not known, or the code belongs to none.
    """

    path: str
    module: nn.Module | None


class Names:
    """What the names of a captured function stand for. Keeps the program's objects alive: not to be kept itself."""

    def __init__(self, local_names: Mapping[str, Any], global_names: Mapping[str, Any]) -> None:
        self.locals = local_names
        self._globals = global_names

    def values(self, expression: str) -> Iterator[tuple[str, Any]]:
        """(name, value) of each step of an expression such as "L['self'].layers.0", the variable itself first.

        A value is None where it is not known.
        """
        base = _BASE.match(expression)
        value = (self.locals if base[1] == "L" else self._globals).get(base[2]) if base else None
        yield "", value
        for token in _TOKEN.finditer(expression, base.end() if base else 0):
            name = next(group for group in token.groups() if group is not None)
            value = _step(value, name)
            yield name, value

    def value(self, expression: str) -> Any:
        """What an expression stands for, None if that is not known."""
        return list(self.values(expression))[-1][1]


def outermost_module(names: Names, expression: str) -> nn.Module | None:
    """The first module on the way along `expression`: of "L['self'].model.body" that is `model`, if `self` is none."""
    return next((value for _, value in names.values(expression) if isinstance(value, nn.Module)), None)


class Scope:
    """The variables of one run of a captured function. Keeps the program's objects alive: not to be kept itself."""

    def __init__(self, code: CodeType | None, names: Names) -> None:
        self._names = names
        self.own = Place("", _owner(code, names.locals))

    def place(self, expression: str) -> Place:
        """The module that torch denotes by `expression`, such as "L['self'].layers.0"; the function's own for ""."""
        if not expression:
            return self.own
        path: list[str] = []
        holder: Any = None
        value: Any = None
        for position, (name, value) in enumerate(self._names.values(expression)):
            # Before the first module come closures, lists and objects that hold it.
            if position and (isinstance(holder, nn.Module) or holder is None) and name not in _SILENT:
                path.append(name)
            holder = value
        return Place(".".join(path), value if isinstance(value, nn.Module) else None)


def current_scope(code: CodeType | None) -> Scope:
    """The scope of the frame that runs what was captured from `code`; an empty one if none does."""
    frame = _frame_of(code)
    return Scope(code if frame is not None else None, _names_in(frame))


def current_names(code: CodeType | None) -> Names:
    """The names of that frame."""
    return _names_in(_frame_of(code))


def _names_in(frame: FrameType | None) -> Names:
    return Names(frame.f_locals, frame.f_globals) if frame is not None else Names({}, {})


def _frame_of(code: CodeType | None) -> FrameType | None:
    frame: FrameType | None = sys._getframe(2)
    for _ in range(_DEPTH):
        if frame is None or code is None:
            break
        running = frame.f_code
        if (running.co_name, running.co_filename, running.co_firstlineno) == (
            code.co_name,
            code.co_filename,
            code.co_firstlineno,
        ):
            return frame
        frame = frame.f_back
    return None


def function_name(code: CodeType) -> str:
    """The name of the function that `code` is of, also where it is the rest of one after a graph break."""
    resumed = _RESUMED.fullmatch(code.co_name)
    return resumed[1] if resumed else code.co_name


def _step(value: Any, name: str) -> Any:
    """One attribute, key or index further, without running code of the program; None where that is not possible."""
    if isinstance(value, nn.Module):
        if name == "_modules":
            return value._modules
        if name in value._modules:
            return value._modules[name]
        if name.isdigit():
            return list(value._modules.values())[int(name)]
        return vars(value).get(name)
    if isinstance(value, dict):
        return value.get(name)
    if isinstance(value, (list, tuple)):
        return value[int(name)] if name.isdigit() and int(name) < len(value) else None
    if name in ("__closure__", "cell_contents", "__self__"):
        return getattr(value, name, None)
    return inspect.getattr_static(value, name, None)


def _owner(code: CodeType | None, names: Mapping[str, Any]) -> nn.Module | None:
    """The module of which `code` is a method, also where it is the rest of one after a graph break."""
    if code is None:
        return None
    called = names.get("fn")
    if isinstance(called, nn.Module) and code.co_filename.endswith("external_utils.py"):
        return called  # torch's own wrapper around a module whose forward is torch's, such as Sequential
    method = function_name(code)
    for value in names.values():
        if isinstance(value, nn.Module):
            for kind in type(value).__mro__:
                function = inspect.unwrap(vars(kind)[method]) if method in vars(kind) else None
                found = getattr(function, "__code__", None)
                if found is not None and found.co_filename == code.co_filename:
                    return value
    return None
