"""Run a program as `python` itself would: same sys.argv, sys.path, __main__, traceback and exit status.

The front-end was started as `python [options] -m FRONTEND ...`, so python has put the working directory at the head
of sys.path (unless -P or -I said not to). Each form of program wants something else there.
"""

from __future__ import annotations

import builtins
import io
import marshal
import os
import runpy
import sys
import traceback
import types
from importlib.machinery import BuiltinImporter, SourceFileLoader, SourcelessFileLoader
from importlib.util import MAGIC_NUMBER
from types import CodeType, TracebackType
from typing import Any

USAGE = "script.py [args...] | -m module [args...] | -c code [args...]"


def run_program(words: list[str], command: str = f"python -m {__package__}") -> None:
    """Run the program that `words` name, replacing this process's __main__.

    Args:
        command: What was called with these words, for the usage line.

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
        sys.stderr.write(f"usage: {command} {USAGE}\n")
        raise SystemExit(2)


def _run_script(words: list[str]) -> None:
    path = words[0]
    sys.argv[:] = words
    # Since Python 3.9, __file__ of a script is absolute; python joins, and does not normalize.
    absolute = os.path.join(os.getcwd(), path)
    if _is_importable(absolute):
        # A directory or a zip file: python puts it first in the path, with -I and -P too, and runs its __main__.
        if _has_first_path():
            sys.path[0] = absolute
        else:
            sys.path.insert(0, absolute)
        _new_main()
        _guarded(lambda: runpy._run_module_as_main("__main__", alter_argv=False))  # type: ignore[attr-defined]
        return
    try:
        with io.open_code(absolute) as stream:
            source = stream.read()
    except OSError as error:
        # As python says it, with its exit status.
        sys.stderr.write(f"{sys.executable}: can't open file {absolute!r}: [Errno {error.errno}] {error.strerror}\n")
        raise SystemExit(2) from None
    _set_first_path(os.path.dirname(os.path.realpath(path)))
    main = _new_main()
    main.__file__ = absolute
    main.__dict__["__cached__"] = None
    if source.startswith(MAGIC_NUMBER):
        main.__loader__ = SourcelessFileLoader("__main__", absolute)
        _guarded(lambda: _execute(marshal.loads(source[16:]), main))
        return
    main.__loader__ = SourceFileLoader("__main__", absolute)
    _guarded(lambda: _execute(compile(source, absolute, "exec", dont_inherit=True), main))


def _is_importable(path: str) -> bool:
    """Whether python would import from `path`, as it does from a directory or a zip file, whatever its name."""
    for hook in sys.path_hooks:
        try:
            hook(path)
        except ImportError:
            continue
        return True
    return False


def _run_module(words: list[str]) -> None:
    # runpy's own entry point for `python -m`: it fills the present __main__ and sets sys.argv[0] to the file.
    # As python does: the module's name gives way to its file once it has been found.
    sys.argv[:] = ["-m", *words[1:]]
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
    main.__loader__ = BuiltinImporter
    main.__annotations__ = {}
    sys.modules["__main__"] = main
    return main


def _set_first_path(entry: str) -> None:
    """Replace the working directory that `python -m` put first. With -P or -I there is none, and none is added."""
    if _has_first_path():
        sys.path[0] = entry


def _has_first_path() -> bool:
    return not getattr(sys.flags, "safe_path", False) and not sys.flags.isolated


def _execute(code: CodeType, main: types.ModuleType) -> None:
    exec(code, main.__dict__)


def _guarded(program: Any) -> None:
    """Run; report an uncaught exception without the front-end's frames, then exit as python does."""
    failure: BaseException | None = None
    try:
        program()
    except SystemExit:
        raise
    except BaseException as error:
        failure = error
    if failure is None:
        return
    # Outside of the except block, since python calls the hook with no exception being handled.
    _report(failure)
    if isinstance(failure, KeyboardInterrupt) or sys.flags.inspect or os.environ.get("PYTHONINSPECT"):
        # Python ends itself with SIGINT after the exit handlers have run, or stays for a look around (-i). The
        # interpreter is to see the exception for that, and to print nothing more.
        hook = sys.excepthook

        def already_reported(*_: object) -> None:
            sys.excepthook = hook

        sys.excepthook = already_reported
        raise failure
    raise SystemExit(1)


def _report(error: BaseException) -> None:
    trimmed = _without_frontend(error.__traceback__)
    error.__traceback__ = trimmed
    # What the interpreter sets for an uncaught exception; debuggers and collectors look here at exit.
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, trimmed
    if sys.version_info >= (3, 12):
        sys.last_exc = error
    try:
        sys.excepthook(type(error), error, trimmed)
    except SystemExit:
        raise
    except BaseException as failure:
        failure.__traceback__ = _without_frontend(failure.__traceback__)
        sys.stderr.write("Error in sys.excepthook:\n")
        traceback.print_exception(failure)
        sys.stderr.write("\nOriginal exception was:\n")
        traceback.print_exception(error)


def _without_frontend(frames: TracebackType | None) -> TracebackType | None:
    """Drop the leading frames of this file; runpy's own stay, since `python -m` shows them too."""
    while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next
    return frames
