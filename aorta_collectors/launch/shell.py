"""The command in `bash -c '...'`, where it is one simple command whose words can be told."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

# Anything that may expand, redirect, group or join commands, also where it is quoted: then nothing is concluded.
_NOT_SIMPLE = re.compile(r"[;&|<>()$`*?\[\]{}~!#\n]")


def simple_command(words: Sequence[str], start: int) -> list[str]:
    """The words that a shell would run; none if it runs a script, or if they cannot be told.

    Args:
        start: Index in `words` behind the shell's name.
    """
    index = start
    is_command = False
    while index < len(words) and words[index].startswith("-") and not words[index].startswith("--"):
        letters = words[index][1:]
        if not letters.isalpha() or set(letters) & set("oO"):
            return []
        is_command |= "c" in letters
        index += 1
    if not is_command or index >= len(words) or _NOT_SIMPLE.search(words[index]):
        return []
    try:
        found = shlex.split(words[index])
    except ValueError:
        return []
    assigned = 0
    while assigned < len(found) and re.match(r"[A-Za-z_][A-Za-z0-9_]*=", found[assigned]):
        assigned += 1
    command = found[assigned:]
    if command[:1] == ["exec"]:
        command = command[1:]
    # An assignment of the shell's is env's.
    return ["env", *found[:assigned], *command] if assigned else command
