"""Progress: a bar where there is a terminal, whole lines everywhere."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from aorta_collectors.scaleout.progress import Display

LONG = Path("/a", *["long"] * 60, "1_0_log.out")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _shown(out: io.StringIO) -> str:
    with Display(out, 3) as display:
        display.say("baseline", f"job 1 submitted; its log: {LONG}")
        display.count(1, 1, 1)
    return out.getvalue()


def test_on_a_terminal_there_is_a_bar_with_the_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    shown = _shown(Terminal())
    assert "cells: 1 done, 1 running, 1 failed" in shown
    assert "2/3" in shown


def test_elsewhere_there_are_only_lines_and_a_path_stays_whole() -> None:
    assert _shown(io.StringIO()) == f"baseline: job 1 submitted; its log: {LONG}\n"


def test_what_a_program_chose_does_not_move_the_cursor() -> None:
    out = io.StringIO()
    Display(out, 1).say("baseline", "lacking: no record of \x1b[2Jlayer")
    assert out.getvalue() == "baseline: lacking: no record of \\x1b[2Jlayer\n"
