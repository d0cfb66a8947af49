"""`aorta-collectors trajectory`: the chart, the table and the JSON, as a terminal, a pipe and a file get them."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from aorta_collectors.analysis.database import Database
from aorta_collectors.analysis.search import captures_below
from aorta_collectors.analysis.trajectory import Wanted, trajectory
from aorta_collectors.report.chart import Line, chart
from aorta_collectors.report.trajectory import points, render
from tests.captured.synthetic import record, write
from tests.support import Ran, run

_HOSTILE = "x\x1b[2J<b>[red]\n" + "deep." * 60 + "end"


def ran(path: Path, *options: str, **env: str) -> Ran:
    return run(["aorta-collectors", "trajectory", str(path), *options], path, env)


def shown(path: Path, *layers: str, width: int = 80, every: bool = False) -> list[str]:
    out = io.StringIO()
    console = Console(file=out, width=width, highlight=False, markup=False, emoji=False)
    with Database(captures_below(path)) as database:
        render(trajectory(database, Wanted(layers, points=points(width), every=every)), console, every)
    return out.getvalue().splitlines()


class TestTheCommand:
    def test_shows_where_it_goes_bad_and_what_was_bad_before(self, captured: Callable[[str], Path]) -> None:
        out = ran(captured("overflow"), "over_arch.model.1").ok().out
        assert "\x1b" not in out
        assert "1  step 23 huge  none-none " in out
        assert "2  none          clip_gradients-none " in out
        assert "bad before that: over_arch.model.1 igrad from step 18 (--role igrad)" in out
        assert "no record of it: no_collectors-none, trial 0" in out
        (row,) = (line.split() for line in out.splitlines() if line.split()[:1] == ["23"])
        assert row[2] == "x3"  # the weights of the demo triple with each step
        assert row[-2:] == ["4", "huge"]

    def test_gives_json_of_each_step(self, captured: Callable[[str], Path], tmp_path: Path) -> None:
        file = tmp_path / "found.json"
        options = ("--cell", "none-none", "--role", "igrad", "--steps", "15:20", "--json", "-o", str(file))
        assert ran(captured("overflow"), "model.1", *options).ok().out == ""
        (series,) = json.loads(file.read_text())["series"]
        assert [point["step"] for point in series["points"]] == list(range(15, 21))
        assert [point["kind"] for point in series["points"]] == [None] * 3 + ["huge"] * 3
        assert (series["first_bad"], series["role"], series["tensor_path"]) == (18, "igrad", "[0]")

    @pytest.mark.parametrize("steps", ["5:3", "a:b", "x"])
    def test_refuses_what_is_no_range(self, tmp_path: Path, steps: str) -> None:
        refused = ran(write(tmp_path, {0: [record(1)]}), "a", "--steps", steps)
        assert refused.code == 2
        assert repr(steps) in refused.err

    def test_needs_no_more_than_ascii(self, tmp_path: Path) -> None:
        write(tmp_path, {0: [record(step, "\u00e4" * 90, high=10.0**step, nans=step // 4) for step in range(1, 5)]})
        out = ran(tmp_path, "*", PYTHONIOENCODING="ascii").ok().out
        assert out.isascii()
        assert "\\u28" not in out  # no escapes in place of a chart
        assert "N nan" in out


@pytest.mark.parametrize("width", [32, 40, 80, 120])
def test_lines_fit_and_names_are_harmless(tmp_path: Path, width: int) -> None:
    lines = [record(step, _HOSTILE, high=10.0**step, infs=int(step > 6)) for step in range(1, 10)]
    write(tmp_path, {0: lines, 1: [record(1, _HOSTILE)]})
    out = shown(tmp_path, "*", width=width, every=True)
    assert all(len(line) <= width for line in out)
    assert not any(char in "\x1b\x07" for line in out for char in line)
    assert any("step 7 inf" in line for line in out)


def test_a_single_record_and_one_with_nothing_finite(tmp_path: Path) -> None:
    write(tmp_path, {0: [record(1, "one"), record(1, "none", seq=1, high=None, nans=8)]})
    assert any("none" in line and "first" not in line for line in shown(tmp_path, "one"))
    assert any("8 nan" in line for line in shown(tmp_path, "none"))


class TestTheChart:
    def drawn(self, *points: tuple[int, float | None, str | None], height: int = 14) -> list[str]:
        return chart([Line("", points)], [("float16 max", 65504.0)], 60, height, ascii_only=True).splitlines()

    def test_has_a_letter_for_each_bad_value_at_the_top_where_nothing_is_finite(self) -> None:
        out = self.drawn((1, 1.0, None), (2, 1e3, None), (3, 6e4, "inf"), (4, None, "nan"))
        rows = {letter: row for row, line in enumerate(out) for letter in "NI" if letter in line.split("\u2502")[-1]}
        assert rows["N"] < rows["I"] < len(out) / 2

    def test_draws_a_limit_only_in_reach(self) -> None:
        assert any("float16 max" in line for line in self.drawn((1, 1.0, None), (2, 100.0, None)))
        assert not any("float16 max" in line for line in self.drawn((1, 1.0, None), (2, 10.0, None)))

    def test_grows_upwards_with_the_logarithm(self) -> None:
        out = self.drawn(*((step, 10.0**step, None) for step in range(3)))
        columns = [min(line.find(".") for line in [row] if "." in line) for row in out if "." in row]
        assert columns == sorted(columns, reverse=True)

    def test_of_nothing_is_nothing(self) -> None:
        assert self.drawn() == []
