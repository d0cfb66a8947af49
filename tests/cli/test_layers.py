"""`aorta-collectors layers`: what is on the screen first, what is left out of long models, and the JSON."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from aorta_collectors.analysis.database import Database
from aorta_collectors.analysis.layers import layers
from aorta_collectors.analysis.search import captures_below
from aorta_collectors.report.layers import render
from tests.captured.synthetic import record, write
from tests.support import Ran, run

_HOSTILE = "x\x1b[2J<b>[red]\n" + "deep." * 60 + "end"


def ran(path: Path, *options: str, **env: str) -> Ran:
    return run(["aorta-collectors", "layers", str(path), *options], path, env)


def shown(path: Path, width: int = 80, every: bool = False) -> list[str]:
    out = io.StringIO()
    console = Console(file=out, width=width, highlight=False, markup=False, emoji=False)
    with Database(captures_below(path)) as database:
        render(layers(database), console, (), every)
    return [line.rstrip() for line in out.getvalue().splitlines()]


class TestTheCommand:
    def test_says_where_bad_begins_and_marks_it(self, captured: Callable[[str], Path]) -> None:
        lines = ran(captured("mitigations"), "--cell", "none-none").ok().out.splitlines()
        assert lines[:2] == [
            "none-none, trial 0: step 13",
            "bad begins in step 13: blocks.0.attention.scores act, inf",
        ]
        (begins,) = (line.split() for line in lines if line.startswith(">  "))
        assert begins[1] == "blocks.0.attention.scores"
        assert begins[-3:] == ["2", "inf", "13"]
        assert [line.split()[1] for line in lines if line.startswith("^  ")] == [
            "blocks.1.attention.scores",
            "blocks.2.attention.scores",
        ]
        assert "not shown: loss, igrad, wgrad, weight (--role, or --all)" in lines

    def test_says_that_nothing_is_bad(self, captured: Callable[[str], Path]) -> None:
        out = ran(captured("clean")).ok().out
        assert "nothing is bad in steps 1 to 8" in out
        assert "since" not in out

    def test_gives_all_rows_as_json(self, captured: Callable[[str], Path]) -> None:
        found = json.loads(ran(captured("overflow"), "--step", "30", "--json").ok().out)
        assert (found["step"], found["first_bad"]["step"], found["first_bad"]["kind"]) == (30, 18, "huge")
        since = {
            (spread["role"], row["layer"]): row["bad_since"] for spread in found["by_role"] for row in spread["rows"]
        }
        assert since["act", "over_arch.model.1"] == 23
        assert since["igrad", "over_arch.model.1"] == 18
        assert len(since) == 15

    def test_a_step_without_records_is_an_error(self, tmp_path: Path) -> None:
        refused = ran(write(tmp_path, {0: [record(1)]}), "--step", "7")
        assert refused.code == 1
        assert "the nearest steps that are: 1" in refused.err

    def test_needs_no_more_than_ascii(self, tmp_path: Path) -> None:
        write(tmp_path, {0: [record(1, "\u00e4"), record(1, "b", seq=1, high=100.0)]})
        out = ran(tmp_path, PYTHONIOENCODING="ascii").ok().out
        assert "########" in out
        assert "\\u2588" not in out


class TestALongModel:
    @pytest.fixture
    def long(self, tmp_path: Path) -> Path:
        def high(index: int) -> float:
            return 1e6 if index == 900 else 1.0

        of_model = [
            record(1, f"l{index}", seq=index, high=high(index), nans=int(index >= 500)) for index in range(1000)
        ]
        return write(tmp_path, {0: of_model})

    def test_shows_the_beginning_the_jumps_and_both_ends(self, long: Path) -> None:
        lines = shown(long)
        names = {line.split()[line.startswith((">", "^"))] for line in lines if line.split()[1:]}
        assert {"l0", "l499", "l500", "l501", "l900", "l999"} <= names
        assert len(lines) < 50
        assert "   ... 489 more" in lines
        assert any(line.endswith(", 387 bad") for line in lines)

    def test_shows_everything_where_that_is_asked_for(self, long: Path) -> None:
        assert sum(" l" in line for line in shown(long, every=True)) >= 1000


@pytest.mark.parametrize("width", [32, 40, 80, 120])
def test_lines_fit_and_names_are_harmless(tmp_path: Path, width: int) -> None:
    write(tmp_path, {0: [record(1, f"{_HOSTILE}{seq}", seq=seq, high=10.0 ** (9 * seq), nans=seq) for seq in range(3)]})
    out = shown(tmp_path, width=width)
    assert all(len(line) <= width for line in out)
    assert not any(char in "\x1b\x07" for line in out for char in line)
    assert any(line.startswith(">") and "1 nan" in line for line in out)
