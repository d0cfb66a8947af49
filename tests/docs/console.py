"""What a page says that a terminal shows: its commands, one bash that they are typed into, and comparing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support import run

#: Printed between the commands, with the exit code of the one before.
MARK = "--- exit code of the command above:"


@dataclass(frozen=True)
class Shown:
    """A command of a page, and the lines that stand below it."""

    command: str
    output: tuple[str, ...]

    def matches(self, lines: Sequence[str]) -> bool:
        """Whether it printed just these lines.

        A line `...` stands for any number of any lines, and for none; within a line it stands for any text in there.
        Spaces at the end of a line do not show, and do not count.
        """
        pattern = "".join(r"(?:.*\n)*?" if line == "..." else rf"{_line(line)}[ ]*\n" for line in self.output)
        return re.fullmatch(pattern, "".join(f"{line}\n" for line in lines)) is not None


@dataclass(frozen=True)
class Typed:
    """How a command went: its exit code, and what the terminal showed."""

    code: int
    lines: tuple[str, ...]


def commands(page: str) -> list[Shown]:
    """Those of the page's blocks of `console`, in their order."""
    found: list[Shown] = []
    for block in re.findall(r"^```console\n(.*?)^```$", page, flags=re.M | re.S):
        for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
            command, output = _continued(part)
            found.append(Shown(command, tuple(line.rstrip() for line in output)))
    return found


def session(typed: Sequence[str], directory: Path) -> list[Typed]:
    """Type commands into one bash, each after the one before has ended; `$?` is what that one left."""
    lines = ["exec 2>&1", "set -o pipefail"]
    for command in typed:
        lines += [command, f'code=$?; echo "{MARK} $code"; (exit $code)']
    lines.append("exit 0")
    # Workers of a compiler's pool would import torch once more each, for a few small kernels.
    environment = {"AORTA_COLLECTORS_REPORT": "on", "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    ran = run(["bash", "-c", "\n".join(lines)], directory, environment, timeout=290).ok()
    parts = re.split(rf"^{re.escape(MARK)} (\d+)\n", ran.out, flags=re.M)
    return [Typed(int(code), tuple(output.splitlines())) for output, code in zip(parts[::2], parts[1::2], strict=False)]


def _continued(part: str) -> tuple[str, list[str]]:
    """A command with its further lines, as long as each ends in a backslash, and what stands below."""
    lines = part.splitlines()
    end = next(number for number, line in enumerate(lines) if not line.endswith("\\"))
    return "\n".join(lines[: end + 1]), lines[end + 1 :]


def _line(line: str) -> str:
    return ".*?".join(map(re.escape, line.split("...")))
