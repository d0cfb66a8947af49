"""Programs that are Python scripts themselves: run by path for their first line, or console scripts on the PATH."""

from __future__ import annotations

import os
import re
import stat

_LONGEST = 4096
# What pip and uv write where the interpreter's path has spaces or is too long for a first line.
_THROUGH_SHELL = re.compile(rb"#!/bin/sh\n'''exec' (\"[^\"\n]+\"|[^\s\"]+) \"\$0\" \"\$@\"\n' '''\n")


def interpreter_words(path: str) -> list[str]:
    """The words by which the system would start the script at `path`; none if it is no script, or not executable.

    Of a script that goes through env, these are env's words: what PATH finds is for the caller to decide.
    """
    head = _head(path)
    through_shell = _THROUGH_SHELL.match(head)
    if through_shell is not None:
        return [os.fsdecode(through_shell.group(1).strip(b'"'))]
    if not head.startswith(b"#!") or b"\n" not in head:
        return []
    line = os.fsdecode(head[2 : head.index(b"\n")]).strip(" \t\r")
    # The system hands over all that follows the interpreter as one word.
    interpreter, _, rest = line.replace("\t", " ").partition(" ")
    rest = rest.strip()
    if os.path.basename(interpreter) == "env" and rest.startswith(("-S", "--split-string")):
        return [interpreter, *_split(rest.removeprefix("--split-string=").removeprefix("-S"))]
    return [word for word in (interpreter, rest) if word]


def _split(text: str) -> list[str]:
    """What env -S makes of a string, where it has nothing but words; else one word, which no launcher has."""
    return text.split() if re.fullmatch(r"[\w\s./=+,:@%-]*", text) else [text]


def _head(path: str) -> bytes:
    try:
        if not os.access(path, os.X_OK):
            return b""
        # A pipe, say, would block.
        if not stat.S_ISREG(os.stat(path).st_mode):
            return b""
        with open(path, "rb") as stream:
            return stream.read(_LONGEST)
    except (OSError, ValueError):
        return b""
