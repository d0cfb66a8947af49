"""Finding the Python program in a command line: a chain of launchers ending in a script, -m module or -c code.

What is not in the tables below is not guessed at: the command then runs unchanged and arms its children through the
environment. Sources of the option tables: `python --help`, env(1), timeout(1), nice(1), ionice(1), taskset(1),
numactl(8), nohup(1), stdbuf(1), setsid(1), and `torchrun --help` of torch 2.13.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_PYTHON = re.compile(r"python(\d+(\.\d+)?t?)?$|pypy3?$")
# Not S: without site-packages the front-end cannot be found. Not x: it skips a script's first line.
_PYTHON_FLAGS = frozenset("bBdEhiIOPqsuvVR?")
_PYTHON_WITH_VALUE = frozenset("WX")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")


@dataclass(frozen=True)
class Target:
    """Where in argv the Python program begins.

    Attributes:
        insert_at: Index at which "-m FRONTEND" can be inserted, or None for a command that cannot be rewritten.
        kind: "script", "module", "code", "torchrun" or "opaque".
        description: What was found, for people.
        program: Index of the script, module name or code; None if opaque.
    """

    insert_at: int | None
    kind: str
    description: str
    program: int | None = None


@dataclass(frozen=True)
class _Launcher:
    """Options of a program that runs another: how many words follow each, and how many operands come before it.

    A long option written --name=value takes no further word.
    """

    values: Mapping[str, int]
    flags: frozenset[str] = frozenset()
    operands: int = 0
    assignments: bool = False


def _options(with_value: str, flags: str = "", operands: int = 0, assignments: bool = False) -> _Launcher:
    return _Launcher(dict.fromkeys(with_value.split(), 1), frozenset(flags.split()), operands, assignments)


_WRAPPERS: Mapping[str, _Launcher] = {
    "env": _options("-u --unset -C --chdir", "-v --debug", assignments=True),
    "timeout": _options("-k --kill-after -s --signal", "--foreground --preserve-status -v --verbose", operands=1),
    "nice": _options("-n --adjustment"),
    "ionice": _options("-c --class -n --classdata", "-t --ignore"),
    "taskset": _options("", "-c --cpu-list -a --all-tasks", operands=1),
    "numactl": _options(
        "-C --physcpubind -N --cpunodebind -m --membind -i --interleave -p --preferred",
        "-l --localalloc -a --all -b --balancing",
    ),
    "nohup": _options(""),
    "setsid": _options("", "-c --ctty -f --fork -w --wait"),
    "stdbuf": _options("-i --input -o --output -e --error"),
}

_TORCHRUN_VALUES = (
    "nnodes nproc-per-node rdzv-backend rdzv-endpoint rdzv-id rdzv-conf max-restarts monitor-interval start-method "
    "event-log-handler role log-dir redirects tee local-ranks-filter duplicate-stdout-filters "
    "duplicate-stderr-filters node-rank master-addr master-port local-addr logs-specs numa-binding signals-to-handle "
    "shutdown-timeout"
)
_TORCHRUN_FLAGS = "standalone run-path no-python use-agent-store virtual-local-rank"


def find_target(argv: Sequence[str], interpreter_dir: str = "") -> Target:
    """Find the Python program that `argv` ends in.

    Args:
        interpreter_dir: Where the interpreter with this package lives; "" accepts any.
    """
    index = 0
    while index < len(argv):
        name = os.path.basename(argv[index])
        wrapper = _WRAPPERS.get(name)
        if wrapper is None:
            break
        after = _skip_options(argv, index + 1, wrapper)
        if after is None:
            return _opaque(f"{name} with an option that is not known here")
        if wrapper.assignments and any(word.startswith("PATH=") for word in argv[index + 1 : after]):
            return _opaque(f"{name} changes PATH, so that another Python may be meant")
        index = after
    if index >= len(argv):
        return _opaque("no command at the end of the launchers")
    name = os.path.basename(argv[index])
    if _PYTHON.match(name):
        return _python(argv, index, interpreter_dir)
    if name == "torchrun":
        if not _same_environment(argv[index], interpreter_dir):
            return _opaque(f"{argv[index]} belongs to another Python environment")
        return _torchrun(argv, index + 1)
    return _opaque(f"{name} is not a Python program or a launcher known here")


def _opaque(why: str) -> Target:
    return Target(None, "opaque", why)


def _skip_options(argv: Sequence[str], index: int, launcher: _Launcher) -> int | None:
    """The index of the first word after the launcher's options and operands, or None if one is unknown."""
    while index < len(argv):
        word = argv[index]
        if word == "--":
            index += 1
            break
        if launcher.assignments and _ASSIGNMENT.match(word):
            index += 1
        elif word in launcher.values:
            index += 1 + launcher.values[word]
        elif word in launcher.flags or word.split("=", 1)[0] in launcher.values:
            index += 1
        elif word.startswith("-") and len(word) > 2 and word[:2] in launcher.values and word[1] != "-":
            index += 1  # -n10
        elif word.startswith("-"):
            return None
        else:
            break
    if launcher.assignments:
        while index < len(argv) and _ASSIGNMENT.match(argv[index]):
            index += 1
    return index + launcher.operands


def _python(argv: Sequence[str], start: int, interpreter_dir: str) -> Target:
    if not _same_environment(argv[start], interpreter_dir):
        return _opaque(f"{argv[start]} belongs to another Python environment")
    index = start + 1
    while index < len(argv):
        word = argv[index]
        if word == "--":
            return _script(argv, index + 1, index + 1)
        if word == "-":
            return _opaque("python reads its program from standard input")
        if not word.startswith("-"):
            return _script(argv, index, index)
        if word.startswith("--"):
            if word != "--check-hash-based-pycs":
                return _opaque(f"python with {word}")
            index += 2
            continue
        step = _short_options(word)
        if step == "unknown":
            return _opaque(f"python with {word}")
        if step == "m":
            return _module(argv, index, start, interpreter_dir)
        if step == "c":
            if word != "-c":
                return _opaque(f"python with {word}, options and code in one word")
            return (
                Target(index, "code", "python -c", index + 1) if index + 1 < len(argv) else _opaque("python -c alone")
            )
        index += 2 if step == "value" else 1
    return _opaque("python without a program")


def _short_options(word: str) -> str:
    """What a word of short options does: "flags", "value" (the next word is its value), "m", "c" or "unknown"."""
    for position, letter in enumerate(word[1:], start=1):
        if letter in _PYTHON_FLAGS:
            continue
        if letter in _PYTHON_WITH_VALUE:
            return "value" if position == len(word) - 1 else "flags"
        return letter if letter in ("m", "c") else "unknown"
    return "flags"


def _script(argv: Sequence[str], program: int, insert_at: int) -> Target:
    if program >= len(argv):
        return _opaque("python without a program")
    # "--" ends python's options; the front-end goes before it and finds the script after it.
    insert_at = insert_at - 1 if argv[insert_at - 1] == "--" else insert_at
    return Target(insert_at, "script", f"python script {os.path.basename(argv[program])}", program)


def _module(argv: Sequence[str], index: int, start: int, interpreter_dir: str) -> Target:
    if argv[index] != "-m" or index + 1 >= len(argv):
        return _opaque(f"python with {argv[index]}, options and a module in one word")
    name = argv[index + 1]
    if name in ("torch.distributed.run", "torch.distributed.launch"):
        found = _torchrun(argv, index + 2)
        return found if name.endswith(".run") else _opaque(f"python -m {name} is deprecated by torch")
    return Target(index, "module", f"python -m {name}", index + 1)


def _torchrun(argv: Sequence[str], index: int) -> Target:
    """torchrun's own options, then the script. With -m, the script is a module name."""
    values, flags = set(_TORCHRUN_VALUES.split()), set(_TORCHRUN_FLAGS.split())
    short_values = {"-r", "-t"}
    module_at: int | None = None
    while index < len(argv):
        word = argv[index]
        key = word.lstrip("-").split("=", 1)[0].replace("_", "-")
        if word in ("-m", "--module"):
            module_at = index
            index += 1
        elif word in short_values:
            index += 2
        elif word.startswith("--") and key in values:
            index += 1 if "=" in word else 2
        elif word.startswith("--") and key in flags:
            if key in ("no-python", "run-path"):
                return _opaque(f"torchrun with {word}")
            index += 1
        elif word.startswith("-"):
            return _opaque(f"torchrun with {word}, which is not known here")
        else:
            break
    if index >= len(argv):
        return _opaque("torchrun without a program")
    if module_at is not None:
        if module_at != index - 1:
            return _opaque("torchrun with options between -m and the module")
        # torchrun [options] -m MODULE becomes torchrun [options] -m FRONTEND -m MODULE.
        return Target(module_at, "torchrun", f"torchrun of module {argv[index]}", index)
    return Target(index, "torchrun", f"torchrun of script {os.path.basename(argv[index])}", index)


def _same_environment(command: str, interpreter_dir: str) -> bool:
    """Whether `command` lies beside the interpreter that has this package installed."""
    if not interpreter_dir:
        return True
    found = shutil.which(command)
    return found is not None and os.path.realpath(os.path.dirname(found)) == os.path.realpath(interpreter_dir)
