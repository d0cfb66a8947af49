"""What numerics left goes into exports, alone and beside layer_numerics' records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest

from aorta_collectors.analysis.captures import NUMERICS, Captures
from aorta_collectors.analysis.database import Database
from aorta_collectors.analysis.search import captures_below
from aorta_collectors.export.openmetrics import write_openmetrics
from aorta_collectors.export.tables import write_csv, write_parquet
from aorta_collectors.export.trace import write_trace
from tests.captured.synthetic import record
from tests.captured.synthetic import write as write_records
from tests.export.test_openmetrics import parse
from tests.numerics.synthetic import escalation, write
from tests.support import run

HOSTILE = "a'b\"c,\n<b>\x1b[2J\u202eü; DROP"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Two ranks that were profiled, four steps each."""
    return write(
        tmp_path / "in",
        ranks=2,
        config={"profile": "deferred", "trace": "layer"},
        escalations=[escalation(HOSTILE, 2)],
    )


def _rows(sql: str) -> list[tuple[Any, ...]]:
    return duckdb.connect().execute(sql).fetchall()


def _without_records(path: Path) -> Database:
    return Database(Captures(path, ()))


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_every_line_and_brick_with_where_it_is_from(place: Path, tmp_path: Path, ending: str) -> None:
    (tmp_path / "out").mkdir()
    numerics = captures_below(place, NUMERICS)
    with _without_records(place) as database:
        (write_parquet if ending == "parquet" else write_csv)(database, tmp_path / "out", "true", numerics)
    kinds = ("spans", "stats", "steps", "escalations")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {f"{kind}.{ending}" for kind in (*kinds, "bricks")}
    for kind in kinds:
        lines = (place / f"{kind}_rank0.jsonl").read_text().splitlines()
        table = f"'{tmp_path}/out/{kind}.{ending}'"
        assert _rows(f"SELECT process, count(*) FROM {table} GROUP BY 1 ORDER BY 1") == [
            ("rank0", len(lines)),
            ("rank1", len(lines)),
        ]
    assert _rows(f"SELECT DISTINCT layer FROM '{tmp_path}/out/escalations.{ending}'") == [(HOSTILE,)]
    summary = json.loads((place / "summary_rank0.json").read_text())
    bricks = _rows(f"SELECT layer, direction, calls, self_us FROM '{tmp_path}/out/bricks.{ending}' WHERE rank = 0")
    keys = ("layer", "direction", "calls", "self_us")
    assert sorted(bricks) == sorted(tuple(brick[key] for key in keys) for brick in summary["bricks"])


def test_a_span_is_what_its_line_says(place: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with _without_records(place) as database:
        write_parquet(database, tmp_path / "out", "true", captures_below(place, NUMERICS))
    first = json.loads((place / "spans_rank1.jsonl").read_text().splitlines()[0])
    columns = ", ".join(first)
    (row,) = _rows(
        f"SELECT {columns} FROM '{tmp_path}/out/spans.parquet' WHERE rank = 1 AND span_id = '{first['span_id']}'"
    )
    told = dict(zip(first, row, strict=True))
    assert {**told, "attributes": json.loads(told["attributes"])} == first


def test_a_trace_has_the_processes_of_both(place: Path, tmp_path: Path) -> None:
    records = write_records(tmp_path / "records", {0: [record(1, "a", high=1.0)]}, {0: {"step_times_ms": [10.0]}})
    numerics = captures_below(place, NUMERICS)
    with Database(captures_below(records)) as database:
        write_trace(database, tmp_path / "trace", "true", 5, numerics)
    events = json.loads((tmp_path / "trace").read_text())["traceEvents"]
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert names == {1: "rank 0", 2: "numerics, rank 0", 3: "numerics, rank 1"}
    spans = len((place / "spans_rank0.jsonl").read_text().splitlines())
    assert sum(event["ph"] == "X" and event["pid"] == 2 for event in events) == spans


def test_metrics(place: Path, tmp_path: Path) -> None:
    with _without_records(place) as database:
        write_openmetrics(database.captures, tmp_path / "metrics", captures_below(place, NUMERICS))
    families = parse((tmp_path / "metrics").read_text())
    assert "aorta_numerics_steps" in families
    assert not [name for name in families if name.startswith("aorta_layer_numerics")]


def test_the_verb_takes_what_is_there(place: Path, tmp_path: Path) -> None:
    words = ["aorta-collectors", "export", str(place), "-o", "out", "--format"]
    made = json.loads(run([*words, "parquet", "--json"], tmp_path).ok().out)
    assert made["num_files"] == 5
    refused = run([*words, "tensorboard", "--force"], tmp_path)
    assert refused.code == 1
    assert "layer_numerics" in refused.err
    refused = run([*words, "csv", "--force", "--layer", "a"], tmp_path)
    assert refused.code == 2
    assert "--layer, --role and --tracks are about layer_numerics' records, and there are none" in refused.err
