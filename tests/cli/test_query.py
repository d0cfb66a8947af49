"""`aorta-collectors query`: any question in SQL, in any format, and nothing but questions."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from aorta_collectors.analysis.query import EXAMPLES
from aorta_collectors.cli import main
from aorta_collectors.report.query import write_csv, write_json_lines, write_markdown
from tests.captured.synthetic import record, write
from tests.support import run

HOSTILE = "a|<b>'\x1b[2J\u202e\""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    lines = [record(1, HOSTILE, high=2.5), record(2, "b", high=None, nans=8), record(3, "b", high=1e20, huge=1)]
    return write(tmp_path_factory.mktemp("in"), {0: lines, 1: lines[:1]})


def _query(*words: object, stdin: str | None = None, code: int = 0) -> Result:
    result = CliRunner().invoke(main, ["query", *map(str, words)], input=stdin)
    assert result.exit_code == code, result.output
    return result


def test_the_formats_hold_the_same_rows(place: Path) -> None:
    sql = "SELECT rank, step, layer, finite_abs_max, bad, shape FROM records ORDER BY position"
    rows: list[dict[str, Any]] = json.loads(_query(place, sql, "--json").stdout)
    assert [(row["rank"], row["step"], row["finite_abs_max"], row["bad"]) for row in rows] == [
        (0, 1, 2.5, False),
        (1, 1, 2.5, False),
        (0, 2, None, True),
        (0, 3, 1e20, True),
    ]
    assert rows[0]["layer"] == HOSTILE
    assert rows[0]["shape"] == [2, 4]
    lines = _query(place, sql, "--format", "jsonl").stdout.splitlines()
    assert list(map(json.loads, lines)) == rows
    table = list(csv.DictReader(io.StringIO(_query(place, sql, "--format", "csv").stdout)))
    assert [row["layer"] for row in table] == [row["layer"] for row in rows]
    assert [row["finite_abs_max"] for row in table] == ["2.5", "2.5", "", "1e+20"]
    assert [row["bad"] for row in table] == ["false", "false", "true", "true"]


def test_what_a_person_reads_cannot_move_the_cursor_or_break_a_table(place: Path) -> None:
    for format_ in ("table", "markdown"):
        out = _query(place, "SELECT layer, step FROM records", "--format", format_).stdout
        assert not set(out) & {"\x1b", "\u202e"}
        assert "\\x1b[2J" in out
    rows = out.splitlines()
    assert rows[:2] == ["| layer | step |", "| --- | ---: |"]
    assert rows[2].startswith("| a\\|&lt;b>")


def test_json_has_no_number_that_json_has_not() -> None:
    stream = io.StringIO()
    columns = [("a", "DOUBLE"), ("a", "DOUBLE"), ("b", "DOUBLE[]"), ("c", "JSON")]
    write_json_lines(stream, columns, [(math.nan, -math.inf, [1.0, math.inf], '{"d": 1}'), (None, 0.5, None, None)])
    assert list(map(json.loads, stream.getvalue().splitlines())) == [
        {"a": "NaN", "a_2": "-Inf", "b": [1.0, "Inf"], "c": {"d": 1}},
        {"a": None, "a_2": 0.5, "b": None, "c": None},
    ]
    stream = io.StringIO()
    write_csv(stream, [("a", "DOUBLE"), ("b", "BIGINT[]")], [(math.inf, [1, None])])
    assert list(csv.reader(io.StringIO(stream.getvalue()))) == [["a", "b"], ["Inf", "[1, null]"]]
    stream = io.StringIO()
    write_markdown(stream, [("a", "VARCHAR")], [("x\\|y",)])
    assert stream.getvalue().splitlines()[-1] == "| x\\\\\\|y |"


def test_no_rows_is_an_answer(place: Path) -> None:
    sql = "SELECT * FROM records WHERE step > 99"
    assert json.loads(_query(place, sql, "--json").stdout) == []
    assert _query(place, sql).stdout.endswith("0 rows\n")
    assert _query(place, sql, "--format", "csv").stdout.count("\n") == 1


def test_a_wide_row_is_shown_with_its_columns_below_one_another(place: Path) -> None:
    sql = f"SELECT repeat('x', 200) AS a{', 1 AS b' * 5000} FROM records LIMIT 1"
    lines = _query(place, sql).stdout.splitlines()
    assert lines[0] == "row 1"
    assert lines[1].split() == ["a", "x" * 200]


def test_a_table_says_that_there_are_more_rows(place: Path) -> None:
    assert "the first 1000 rows" in _query(place, "SELECT * FROM range(1001)").stdout
    assert "\n1000 rows\n" in _query(place, "SELECT * FROM range(1000)").stdout
    assert _query(place, "FROM range(100000)", "--format", "csv").stdout.count("\n") == 100_001


def test_sql_comes_from_a_file_or_from_stdin_too(place: Path, tmp_path: Path) -> None:
    (tmp_path / "q.sql").write_text("SELECT 41 + 1 AS n;\n")
    assert json.loads(_query(place, "-f", tmp_path / "q.sql", "--json").stdout) == [{"n": 42}]
    assert json.loads(_query(place, "-", "--json", stdin="SELECT 1 AS n").stdout) == [{"n": 1}]
    assert json.loads(_query(place, "-f", "-", "--json", stdin="SELECT 2 AS n").stdout) == [{"n": 2}]


def test_wrong_sql_is_shown_with_the_place(place: Path) -> None:
    shown = _query(place, "SELECT layr FROM records", code=2).stderr.splitlines()
    at = next(index for index, line in enumerate(shown) if line.startswith("LINE 1:"))
    assert shown[at + 1].index("^") == shown[at].index("layr")
    assert "^" in _query(place, "SELCT 1", code=2).stderr


@pytest.mark.parametrize(
    "sql",
    [
        "COPY records TO 'OUT'",
        "ATTACH 'OUT'",
        "EXPLAIN ANALYZE COPY records TO 'OUT'",
        "SELECT 1; COPY records TO 'OUT'",
        "EXPORT DATABASE 'OUT'",
        "INSTALL httpfs",
        "SET memory_limit = '90GB'",
        "DROP VIEW records",
        "",
    ],
)
def test_sql_that_does_not_read_is_refused(sql: str, place: Path, tmp_path: Path) -> None:
    shown = _query(place, sql.replace("OUT", str(tmp_path / "out")), code=2).stderr
    assert "expected" in shown
    assert list(tmp_path.iterdir()) == []


def test_without_sql_every_column_is_described_and_the_examples_run(place: Path) -> None:
    described = json.loads(_query(place, "--json").stdout)
    assert set(described) == {"records", "summaries", "receipts", "trials"}
    for view in described.values():
        undescribed = [column["name"] for column in view["columns"] if not column["description"]]
        assert undescribed == []
    shown = _query(place).stdout
    for _, sql in EXAMPLES:
        assert sql in shown
        _query(place, sql)


def test_only_what_was_selected_is_asked(place: Path) -> None:
    sql = "SELECT DISTINCT rank FROM records"
    assert json.loads(_query(place, sql, "--json", "--rank", "1").stdout) == [{"rank": 1}]


@pytest.mark.sweep
def test_the_installed_command_answers_over_a_sweep(captured: Any, tmp_path: Path) -> None:
    sql = "SELECT cell, min(step) AS step FROM records WHERE bad GROUP BY cell"
    words = ["aorta-collectors", "query", str(captured("overflow")), sql]
    assert run([*words, "--json", "-o", "out.json"], tmp_path).ok().out == ""
    (row,) = json.loads((tmp_path / "out.json").read_text())
    assert row == {"cell": "none-none", "step": 18}
    assert "none-none" in run(words, tmp_path).ok().out
    missing = run([*words, "-o", "no/such/place"], tmp_path)
    assert (missing.code, "cannot write" in missing.err) == (1, True)
