"""Run a program as `python` itself would: same sys.argv, sys.path, __main__, traceback and exit status.

The front-end was started as `python [options] -m FRONTEND ...`, so python has put the working directory at the head
of sys.path (unless -P or -I said not to). Each form of program wants something else there.
"""

from __future__ import annotations

import builtins
import io
import os
import runpy
import sys
import traceback
import types
from importlib.machinery import SourceFileLoader
from types import CodeType, TracebackType
from typing import Any

USAGE = "script.py [args...] | -m module [args...] | -c code [args...]"


def run_program(words: list[str]) -> None:
    """Run the program that `words` name, replacing this process's __main__.

    Returns when the program ran to its end; raises SystemExit where it did, or where it failed.
    """
    if words and words[0] == "--":
        words = words[1:]
        if not words:
            raise SystemExit(2)
        _run_script(words)
    elif words and words[0] == "-m" and len(words) > 1:
        _run_module(words[1:])
    elif words and words[0] == "-c" and len(words) > 1:
        _run_code(words[1:])
    elif words and not words[0].startswith("-"):
        _run_script(words)
    else:
        sys.stderr.write(f"usage: python -m {__package__} {USAGE}\n")
        raise SystemExit(2)


def _run_script(words: list[str]) -> None:
    path = words[0]
    sys.argv[:] = words
    if os.path.isdir(path) or path.endswith((".zip", ".pyz")):
        _set_first_path(os.path.abspath(path))
        _new_main()
        _guarded(lambda: runpy.run_path(path, run_name="__main__"))
        return
    try:
        with io.open_code(os.path.abspath(path)) as stream:
            source = stream.read()
    except OSError as error:
        # As python says it, with its exit status.
        sys.stderr.write(
            f"{sys.executable}: can't open file {os.path.abspath(path)!r}: [Errno {error.errno}] {error.strerror}\n"
        )
        raise SystemExit(2) from None
    _set_first_path(os.path.dirname(os.path.realpath(path)))
    main = _new_main()
    # Since Python 3.9, __file__ of a script is absolute.
    absolute = os.path.abspath(path)
    main.__file__ = absolute
    main.__loader__ = SourceFileLoader("__main__", absolute)
    main.__dict__["__cached__"] = None
    _guarded(lambda: _execute(compile(source, absolute, "exec", dont_inherit=True), main))


def _run_module(words: list[str]) -> None:
    # runpy's own entry point for `python -m`: it fills the present __main__ and sets sys.argv[0] to the file.
    sys.argv[:] = words
    _new_main()
    run_as_main: Any = runpy._run_module_as_main  # type: ignore[attr-defined]
    _guarded(lambda: run_as_main(words[0], alter_argv=True))


def _run_code(words: list[str]) -> None:
    sys.argv[:] = ["-c", *words[1:]]
    _set_first_path("")
    main = _new_main()
    main.__dict__.pop("__file__", None)
    _guarded(lambda: _execute(compile(words[0], "<string>", "exec", dont_inherit=True), main))


def _new_main() -> types.ModuleType:
    """A fresh __main__ that stays: functions of the program may run after it, in threads and at exit."""
    main = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = builtins
    main.__annotations__ = {}
    sys.modules["__main__"] = main
    return main


def _set_first_path(entry: str) -> None:
    """Replace the working directory that `python -m` put first. With -P or -I there is none, and none is added."""
    if not getattr(sys.flags, "safe_path", False) and not sys.flags.isolated:
        sys.path[0] = entry


def _execute(code: CodeType, main: types.ModuleType) -> None:
    exec(code, main.__dict__)


def _guarded(program: Any) -> None:
    """Run; report an uncaught exception without the front-end's frames, then exit as python does."""
    try:
        program()
    except SystemExit:
        raise
    except KeyboardInterrupt as error:
        _report(error)
        # Python ends itself with SIGINT after the exit handlers have run; nothing more is to be printed.
        sys.excepthook = lambda *_: None
        raise
    except BaseException as error:
        _report(error)
        raise SystemExit(1) from None


def _report(error: BaseException) -> None:
    trimmed = _without_frontend(error.__traceback__)
    error.__traceback__ = trimmed
    # What the interpreter sets for an uncaught exception; debuggers and collectors look here at exit.
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, trimmed
    if sys.version_info >= (3, 12):
        sys.last_exc = error
    hook = sys.excepthook
    try:
        hook(type(error), error, trimmed)
    except BaseException:
        sys.stderr.write("Error in sys.excepthook:\n")
        traceback.print_exc()


def _without_frontend(frames: TracebackType | None) -> TracebackType | None:
    """Drop the leading frames of this file; runpy's own stay, since `python -m` shows them too."""
    while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next
    return frames
