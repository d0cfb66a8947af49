"""What is told while an investigation runs."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from aorta_collectors.investigate.files import Run
from aorta_collectors.investigate.progress import Display

ENTRY = {"number": 2, "variant": "candidate", "repetition": 1, "seed": None, "tool": True, "warm_up": False}
RECORD: dict[str, Any] = {"state": "failed", "reason": "the program exited with 3"}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def told(stream: io.StringIO) -> str:
    with Display(stream, 3) as display:
        display.begins(ENTRY, 1)
        display.ended(Run(Path("002-candidate-1"), RECORD), ["last \x1b[31mwords"])
        display.begins({**ENTRY, "number": 3}, 0)
    return stream.getvalue()


def test_in_a_pipe_only_what_has_ended_is_told_with_the_last_words_of_a_failure() -> None:
    lines = told(io.StringIO()).splitlines()
    assert lines[0].startswith("002-candidate-1: failed after 0.")
    assert lines[0].endswith(" s: the program exited with 3")
    assert lines[1:] == ["    | last \\x1b[31mwords"]


def test_on_a_terminal_the_present_run_is_told_with_an_estimate() -> None:
    text = told(Terminal())
    assert "run 3: candidate, repetition 1, less than a minute left" in text
    assert "2/3" in text
