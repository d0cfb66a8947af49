"""Keeping torch.compile off our own functions.

Where compiled code leaves its graphs, to call a module, an optimizer or backward(), torch looks at each Python function
that runs then, ours included. It would compile them: as they do nothing while a program is compiled, to nothing, and
what ran there without a graph would go unseen. Functions that are traced as part of the program are not meant here;
those ask torch.compiler.is_compiling().
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import CodeType
from typing import Any

import torch

_PACKAGE = __name__.partition(".")[0]


def leave_own_code_alone() -> None:
    """Tell torch to run each function of this package that is loaded by now as it is, with all that it calls.

    Costs some milliseconds, and needs no import of the compiler. Where torch has no such thing, nothing happens.
    """
    for code in _own_code():
        leave_alone(code)


def leave_alone(code: CodeType) -> None:
    """Tell torch to run a function of ours as it is, with all that it calls.

    One that stands around a function of the program's or of torch's, its free variable `original`, leaves what that
    calls to the compiler.
    """
    frames: Any = getattr(torch._C._dynamo, "eval_frame", None)
    if hasattr(frames, "set_code_exec_strategy"):  # since torch 2.7
        skip, default = frames._FrameAction.SKIP, frames._FrameAction.DEFAULT
        callees = default if "original" in code.co_freevars else skip
        frames.set_code_exec_strategy(code, frames._FrameExecStrategy(skip, callees))
    elif hasattr(frames, "skip_code"):
        frames.skip_code(code)


def _own_code() -> Iterator[CodeType]:
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == _PACKAGE and module is not None:
            for value in list(vars(module).values()):
                if getattr(value, "__module__", None) == name:
                    yield from _code_of(value)


def _code_of(value: Any) -> Iterator[CodeType]:
    """The code of a function, of the methods of a class, and of the functions made inside of those."""
    if isinstance(value, type):
        for member in list(vars(value).values()):
            yield from _code_of(member)
        return
    for function in (value, *(getattr(value, part, None) for part in ("fget", "__func__", "__wrapped__"))):
        code = getattr(function, "__code__", None)
        if isinstance(code, CodeType):
            yield from _with_inner(code)


def _with_inner(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _with_inner(constant)
