"""The page about corruption says what a terminal shows: its commands are run in order, and their output compared."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support import ROOT, run

PAGE = ROOT / "docs" / "how-to" / "find-a-corruption.md"
#: Printed between the commands, with the exit code of the one before.
MARK = "--- exit code of the command above:"


@dataclass(frozen=True)
class Shown:
    """A command of a page, and the lines that stand below it."""

    command: str
    output: tuple[str, ...]

    def matches(self, lines: list[str]) -> bool:
        """Whether it printed just these lines; `...` stands for any number of any lines, and for none."""
        pattern = "".join(r"(?:.*\n)*" if line == "..." else re.escape(line) + r"\n" for line in self.output)
        return re.fullmatch(pattern, "".join(f"{line}\n" for line in lines)) is not None


def _commands(page: str) -> list[Shown]:
    found: list[Shown] = []
    for block in re.findall(r"^```console\n(.*?)^```$", page, flags=re.M | re.S):
        for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
            command, *output = part.splitlines()
            found.append(Shown(command, tuple(output)))
    return found


def _session(commands: list[str], directory: Path) -> list[tuple[int, list[str]]]:
    """(exit code, lines of the terminal) of each command, all of them typed into one bash."""
    lines = ["exec 2>&1", "set -o pipefail"]
    for command in commands:
        lines += [command, f'echo "{MARK} $?"']
    ran = run(["bash", "-c", "\n".join(lines)], directory).ok()
    parts = re.split(rf"^{re.escape(MARK)} (\d+)\n", ran.out, flags=re.M)
    return [(int(code), output.splitlines()) for output, code in zip(parts[::2], parts[1::2], strict=False)]


@pytest.mark.sweep
def test_the_commands_of_the_page_print_what_it_shows(tmp_path: Path) -> None:
    (tmp_path / "recipes").symlink_to(ROOT / "recipes")
    page = _commands(PAGE.read_text(encoding="utf-8"))
    assert len(page) >= 10
    session = _session([shown.command for shown in page], tmp_path)
    assert len(session) == len(page)
    for shown, (code, lines) in zip(page, session, strict=True):
        typed = f"$ {shown.command}\n"
        assert code == 0, typed + "\n".join(lines)
        assert shown.matches(lines), "\n".join([typed, "the page shows", *shown.output, "", "it prints", *lines])


@pytest.mark.parametrize(
    ("output", "lines", "same"),
    [
        ((), [], True),
        ((), ["a"], False),
        (("a", "b"), ["a", "b"], True),
        (("a", "b"), ["a"], False),
        (("a",), ["a", "b"], False),
        (("...", "b"), ["b"], True),
        (("...", "b", "..."), ["a", "a", "b", "c"], True),
        (("a.*",), ["abc"], False),
        (("a",), ["a "], False),
    ],
)
def test_dots_alone_stand_for_other_lines(output: tuple[str, ...], lines: list[str], same: bool) -> None:
    assert Shown("true", output).matches(lines) is same


def test_a_session_keeps_its_variables_and_says_how_each_command_ended(tmp_path: Path) -> None:
    typed = ["export WORD=here", 'echo "$WORD"; echo there >&2', "false | cat", "grep -c x /dev/null"]
    assert _session(typed, tmp_path) == [(0, []), (0, ["here", "there"]), (1, []), (1, ["0"])]
