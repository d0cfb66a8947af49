"""Parquet and CSV say what the records say, and DuckDB reads them back."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from aorta_collectors.analysis.database import Database
from aorta_collectors.analysis.search import captures_below
from aorta_collectors.export.tables import write_csv, write_parquet
from tests.captured.synthetic import record, write

HOSTILE = "a'b\"c,\n<b>\x1b[2J\u202eü; DROP"


def _read(sql: str) -> duckdb.DuckDBPyRelation:
    found = duckdb.sql(sql)
    assert found is not None
    return found


@pytest.fixture
def place(tmp_path: Path) -> Path:
    lines = [
        record(1, HOSTILE, seq=0, high=1.5),
        record(1, "b", seq=1, high=None, nans=8),
        record(2, "b", seq=0, high=3e38, low=-0.0, tensor_path="['x']"),
    ]
    return write(tmp_path / "in", {0: lines, 3: lines[:1]})


def test_parquet_is_the_four_views_with_their_types(place: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.mkdir()
    with Database(captures_below(place)) as database:
        write_parquet(database, target, "true")
        assert {path.name for path in target.iterdir()} == {
            f"{view}.parquet" for view in ("records", "summaries", "receipts", "trials")
        }
        for view in ("records", "summaries", "receipts", "trials"):
            order = "ORDER BY ALL"
            back = _read(f"SELECT * FROM '{target}/{view}.parquet' {order}")
            assert back.fetchall() == database.rows(f"SELECT * FROM {view} {order}")
            types = [row[:2] for row in database.rows(f"DESCRIBE {view}")]
            assert list(zip(back.columns, map(str, back.types), strict=True)) == types
    assert _read(f"SELECT count(*), count(DISTINCT rank) FROM '{target}/records.parquet'").fetchall() == [(4, 2)]


def test_csv_has_the_same_values_as_text(place: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.mkdir()
    with Database(captures_below(place)) as database:
        write_csv(database, target, "layer = 'b'")
        columns = "rank, step, layer, finite_abs_max, finite_min, bad, kind, tensor_path"
        read = f"read_csv('{target}/records.csv', types = {{'kind': 'VARCHAR'}}, allow_quoted_nulls = false)"
        back = _read(f"SELECT {columns} FROM {read} ORDER BY ALL").fetchall()
        assert back == database.rows(f"SELECT {columns} FROM records WHERE layer = 'b' ORDER BY ALL")
        assert len(back) == 2


def test_a_capture_without_a_record_has_its_columns_all_the_same(tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.mkdir()
    place = write(tmp_path / "in", {0: []})
    (place / "layers_rank0.jsonl").unlink()
    with Database(captures_below(place)) as database:
        write_parquet(database, target, "true")
    names = _read(f"SELECT * FROM '{target}/records.parquet'").columns
    assert {"cell", "trial", "rank", "position", "finite_abs_max"} <= set(names)
    assert _read(f"SELECT count(*) FROM '{target}/summaries.parquet'").fetchall() == [(1,)]
