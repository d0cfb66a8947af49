"""A Python interpreter's own words: its options, and where its script, -m module or -c code begins."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

# `python --help` of 3.10 to 3.14. Not x, which skips a script's first line: the front-end does not.
_FLAGS = frozenset("bBdEhiIOPqsSuvVR?")
_WITH_VALUE = frozenset("WX")
_PYTHON = re.compile(r"python(\d+(\.\d+)?t?)?$|pypy3?$")


@dataclass(frozen=True)
class PythonWords:
    """What was read.

    Attributes:
        kind: "script", "module" or "code"; "" where there is none that a front-end could run.
        program: Index of the script, of the module's name or of the code.
        options_end: Index of the word with which the program begins: "--", -m, -c or the script.
        joined: -m stands in one word with other options, such as -um.
        blind: Options by which the interpreter does not see PYTHONPATH, or does not look for a sitecustomize: those
            of I, E and S that were given.
        problem: Why there is no such program.
    """

    kind: str = ""
    program: int = 0
    options_end: int = 0
    joined: bool = False
    blind: str = ""
    problem: str = ""


def is_python(name: str) -> bool:
    """Whether a program of this name, without its directory, is a Python interpreter."""
    return _PYTHON.match(name) is not None


def read_python(words: Sequence[str], start: int) -> PythonWords:
    """Read an interpreter's words, which begin at `start`, behind its name."""
    blind = ""
    index = start
    while index < len(words):
        word = words[index]
        if word == "--":
            if index + 1 < len(words):
                return PythonWords("script", index + 1, index, blind=blind)
            break
        if word == "-":
            return PythonWords(problem="python reads its program from standard input", blind=blind)
        if not word.startswith("-"):
            return PythonWords("script", index, index, blind=blind)
        if word.startswith("--"):
            if word != "--check-hash-based-pycs":
                return PythonWords(problem=f"python with {word}", blind=blind)
            index += 2
            continue
        flags, last = _letters(word)
        blind += "".join(letter for letter in flags if letter in "IES" and letter not in blind)
        if last in ("m", "c"):
            return _after(words, index, last, len(word) > 2, blind)
        if last == "unknown":
            return PythonWords(problem=f"python with {word}", blind=blind)
        index += 2 if last == "value" else 1
    return PythonWords(problem="python without a program", blind=blind)


def _letters(word: str) -> tuple[str, str]:
    """The flags in a word of short options, and what ends it: "", "value" (the next word is one), "m", "c" or
    "unknown"."""
    flags = ""
    for position, letter in enumerate(word[1:], start=1):
        is_last = position == len(word) - 1
        if letter in _FLAGS:
            flags += letter
        elif letter in _WITH_VALUE:
            return flags, "value" if is_last else ""
        else:
            return flags, letter if letter in "mc" and is_last else "unknown"
    return flags, ""


def _after(words: Sequence[str], index: int, letter: str, joined: bool, blind: str) -> PythonWords:
    if index + 1 >= len(words):
        return PythonWords(problem=f"python {words[index]} without a program", blind=blind)
    if letter == "m":
        return PythonWords("module", index + 1, index, joined, blind)
    if joined:
        return PythonWords(problem=f"python with {words[index]}, options and code in one word", blind=blind)
    return PythonWords("code", index + 1, index, blind=blind)
