"""The views: the same order as layer_numerics/order.py, whatever lies in the files, and errors as sentences."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from aorta_collectors.analysis.captures import Captures, Trial
from aorta_collectors.analysis.database import Database
from aorta_collectors.analysis.search import captures_below
from aorta_collectors.errors import CollectorsError
from tests.captured.sweeps import trial
from tests.captured.synthetic import Record, record, write


def place(
    step: int,
    seq: int,
    direction: str,
    evaluation_steps: int | None,
    evaluation: bool,
    recompute: bool,
    checkpoint: str | None,
) -> Record:
    more: dict[str, Any] = {"evaluation_steps": evaluation_steps, "checkpoint": checkpoint}
    more |= {"evaluation": evaluation or None, "recompute": recompute or None}
    return record(
        step, seq=seq, direction=direction, **{name: value for name, value in more.items() if value is not None}
    )


PLACE = st.builds(
    place,
    step=st.integers(0, 4),
    seq=st.integers(0, 3),
    direction=st.sampled_from(["param", "fwd", "bwd", "grad", "pipeline", "unheard of"]),
    evaluation_steps=st.none() | st.integers(0, 2),
    evaluation=st.booleans(),
    recompute=st.booleans(),
    checkpoint=st.sampled_from([None, "", "embedding"]),
)
#: Of a rank: its records, the layers that it has, and how often torchrun had started it.
RANK = st.tuples(
    st.lists(PLACE, max_size=6),
    st.lists(st.sampled_from(["a", "b", "c"]), max_size=2, unique=True),
    st.integers(0, 1),
)
STAGES = [([place(1, 0, "fwd", None, False, False, None), place(1, 1, "bwd", None, False, False, None)], [name], 0)
          for name in "abc"]  # fmt: skip


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@example(STAGES)
@given(st.lists(RANK, min_size=1, max_size=4))
def test_the_order_is_that_of_the_collector(
    tmp_path_factory: pytest.TempPathFactory, ranks: Sequence[tuple[list[Record], list[str], int]]
) -> None:
    # `t` says which record of its file it is.
    named = {rank: [{**entry, "t": float(n)} for n, entry in enumerate(of)] for rank, (of, _, _) in enumerate(ranks)}
    summaries = {rank: {"watched_names": names, "restart": n} for rank, (_, names, n) in enumerate(ranks)}
    directory = write(tmp_path_factory.mktemp("ranks"), named, summaries)
    captures = captures_below(directory)
    lines = {process.rank: process.line for process in captures.trials[0].processes}
    expected = sorted(
        (*map(float, lines[rank].position({**entry, "rank": rank})), entry["t"])
        for rank, of in named.items()
        for entry in of
    )
    with Database(captures) as database:
        found = database.rows("SELECT position, t FROM records ORDER BY position, t")
    assert [(*position, t) for position, t in found] == expected


def test_the_stock_loggers_records_keep_the_order_of_their_file(tmp_path: Path) -> None:
    stock = [record(step, layer) for step in (1, 2) for layer in ("b", "a", "c")]
    for number, entry in enumerate(stock):
        entry["t"] = number / 10
        for name in ("seq", "invocation", "module_path", "tensor_path"):
            del entry[name]
    with Database(captures_below(write(tmp_path / "out", {0: stock}))) as database:
        rows = database.rows("SELECT step, layer, seq, invocation, module_path FROM records ORDER BY position")
    assert rows == [(step, layer, None, None, None) for step in (1, 2) for layer in ("b", "a", "c")]


@pytest.mark.parametrize(
    "line",
    [
        b"nothing",
        b"[1, 2]",
        b"null",
        b'{"type": "layer_step",',
        b'{"type": "something else", "step": 2}',
        b'{"step": 2}',
        b'{"type": "layer_step", "step": "two"}',
        b'{"type": "layer_step", "step": 1e30}',
        b'{"type": "layer_step", "step": 2, "layer_name": "\xff"}',
        b"\x00" * 40,
        b"[" * 3000 + b"]" * 3000,
        json.dumps(record(2)).encode()[:80],
    ],
)
def test_a_line_that_is_no_record_is_passed_over_and_counted(tmp_path: Path, line: bytes) -> None:
    directory = write(tmp_path / "out", {0: [record(1), record(3)]})
    path = directory / "layers_rank0.jsonl"
    first, last = path.read_bytes().splitlines()
    for content in (first + b"\n" + line + b"\n" + last + b"\n", first + b"\n" + last + b"\n" + line):
        path.write_bytes(content)
        with Database(captures_below(directory)) as database:
            assert database.rows("SELECT step FROM records ORDER BY position") == [(1,), (3,)]
            assert database.unreadable_lines() == 1


def test_what_is_written_while_we_read_is_no_record_yet(tmp_path: Path) -> None:
    directory = write(tmp_path / "out", {0: [record(1)]}, {0: {"status": "running"}})
    with Database(captures_below(directory)) as database, (directory / "layers_rank0.jsonl").open("a") as stream:
        stream.write(json.dumps({**record(2), "rank": 0}) + "\n" + '{"type": "layer_st')
        stream.flush()
        assert database.rows("SELECT step FROM records ORDER BY position") == [(1,), (2,)]


@pytest.mark.parametrize("name", ["a*b", "a?b", "[ab]", "a'b", 'a"b', "a\nb", "%20", "ü ß"])
def test_a_path_is_taken_as_it_is(tmp_path: Path, name: str) -> None:
    write(tmp_path / "ab", {0: [record(7)]})  # what the pattern would match
    write(tmp_path / "a", {0: [record(8)]})
    with Database(captures_below(write(tmp_path / name, {0: [record(1)], 1: [record(2)]}))) as database:
        assert database.rows("SELECT step FROM records ORDER BY position") == [(1,), (2,)]


@settings(max_examples=15, deadline=None)
@example("'; DROP VIEW records; --", '\x1b[31m"')
@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), st.text(st.characters(exclude_categories=["Cs"])))
def test_text_comes_back_as_it_was(tmp_path_factory: pytest.TempPathFactory, layer: str, path: str) -> None:
    directory = write(tmp_path_factory.mktemp("text"), {0: [record(1, layer, tensor_path=path)]})
    with Database(captures_below(directory)) as database:
        assert database.rows("SELECT layer, layer_name, tensor_path FROM records") == [(layer, layer, path)]
        assert database.rows("SELECT step FROM records WHERE layer = ?", [layer]) == [(1,)]


def test_cells_and_reasons_come_back_as_they_were(tmp_path: Path) -> None:
    cell = 'it\'s -- "one"; <b>'
    trial(tmp_path, cell, {0: [record(1)]}, mitigations=["o'ne", "none"])
    with Database(captures_below(tmp_path)) as database:
        assert database.rows("SELECT cell, mitigations, verdict, num_processes, passed FROM trials") == [
            (cell, ["o'ne", "none"], "captured", 1, True)
        ]
        assert database.rows("SELECT cell, process, rank FROM summaries") == [(cell, "rank0", 0)]
        assert database.rows("SELECT cell, collector FROM receipts") == [(cell, "layer_numerics")]
        assert database.rows("SELECT cell, trial FROM records") == [(cell, "d0_m0_t0")]


def test_kinds_are_the_worst_that_is_in_the_tensor(tmp_path: Path) -> None:
    counts = [{}, {"huge": 1}, {"infs": 1, "huge": 1}, {"nans": 1, "infs": 1, "huge": 1}]
    records = [record(step, **of) for step, of in enumerate(counts)] + [record(4, oob_count=1), record(5, oob_count=0)]
    with Database(captures_below(write(tmp_path / "out", {0: records}))) as database:
        kinds = [kind for (kind,) in database.rows("SELECT kind FROM records ORDER BY position")]
    assert kinds == [None, "huge", "inf", "nan", "oob", None]


def test_numbers_are_finite_or_null_and_every_record_has_a_place(tmp_path: Path) -> None:
    directory = write(tmp_path / "out", {0: [record(1), record(2)]})
    lines = (directory / "layers_rank0.jsonl").read_text().splitlines()
    for old, new in (
        ('"finite_abs_max": 1.0', '"finite_abs_max": 1e999'),
        ('"finite_max": 1.0', '"finite_max": "nan"'),
    ):
        lines[1] = lines[1].replace(old, new)
    for name in ("seq", "t", "rank"):
        lines[1] = lines[1].replace(f'"{name}": ', f'"no_{name}": ')
    (directory / "layers_rank0.jsonl").write_text("\n".join(lines))
    with Database(captures_below(directory)) as database:
        found = database.rows("SELECT finite_abs_max, finite_max, finite_min, position FROM records ORDER BY step")
    assert found == [(1.0, 1.0, -1.0, [0, 1, 0, 0, 0, 0, 0]), (None, None, -1.0, [0, 2, 0, 0, 0, 0, 0])]


@pytest.mark.parametrize("with_trial", [False, True])
def test_all_views_are_there_where_nothing_is(tmp_path: Path, with_trial: bool) -> None:
    trials = (Trial(".", "cell", "d0_m0_t0", tmp_path, tmp_path),) if with_trial else ()
    with Database(Captures(tmp_path, trials)) as database:
        for view in ("records", "summaries", "receipts"):
            assert database.dicts(f"SELECT * FROM {view}") == []
        assert len(database.rows("SELECT * FROM trials")) == len(trials)
        assert database.rows("SELECT layer, kind, position, training_step FROM records") == []
        assert database.unreadable_lines() == 0


def test_an_error_of_sql_is_a_sentence(tmp_path: Path) -> None:
    directory = write(tmp_path / "out", {0: [record(1)]})
    with Database(captures_below(directory), lambda done: None) as database:
        for ask in (database.rows, database.dicts, lambda sql: list(database.batches(sql))):
            with pytest.raises(CollectorsError, match=r"the query cannot be answered: .*nowhere"):
                ask("SELECT nowhere FROM records")
        (directory / "layers_rank0.jsonl").unlink()
        with pytest.raises(CollectorsError, match="layers_rank0"):
            database.rows("SELECT step FROM records")


def test_a_result_comes_some_rows_at_a_time(tmp_path: Path) -> None:
    directory = write(tmp_path / "out", {0: [record(step) for step in range(25)]})
    with Database(captures_below(directory)) as database:
        batches = list(database.batches("SELECT step FROM records ORDER BY position", size=10))
        assert [row for batch in batches for row in batch] == [(step,) for step in range(25)]
        assert max(map(len, batches)) == 10
        assert database.dicts("SELECT step AS s, layer FROM records LIMIT 1") == [{"s": 0, "layer": "a"}]


def test_joins_as_written_keep_the_right_side_in_memory(tmp_path: Path) -> None:
    with Database(captures_below(write(tmp_path / "out", {0: [record(1)]}))) as database:
        database.rows("CREATE TABLE many AS SELECT range AS step FROM range(100000)")

        def kept() -> str:
            ((_, plan),) = database.rows("EXPLAIN (FORMAT json) SELECT * FROM lines JOIN many USING (step)")
            (top,) = json.loads(plan)
            while len(top["children"]) == 1:
                (top,) = top["children"]
            return json.dumps(top["children"][1])

        assert "READ_JSON" in kept()
        with database.joins_as_written():
            assert "many" in kept()
        assert "READ_JSON" in kept()


def test_memory_and_threads_are_bounded_and_nothing_is_left_behind(tmp_path: Path) -> None:
    with Database(captures_below(write(tmp_path / "out", {0: [record(1)]}))) as database:
        settings_ = "current_setting('memory_limit'), current_setting('threads'), current_setting('temp_directory')"
        ((memory, threads, place_),) = database.rows(f"SELECT {settings_}")
        assert memory == "572.2 MiB"
        assert 1 <= threads <= 8
        assert Path(place_).is_dir()
    assert not Path(place_).exists()


def test_progress_is_told_of_a_query_that_takes_long(tmp_path: Path) -> None:
    told: list[float] = []
    directory = write(tmp_path / "out", {0: [record(1)]})
    with Database(captures_below(directory), told.append) as database:
        while not told:
            database.rows("SELECT count(*) FROM range(8000) a, range(8000) b WHERE (a.range * b.range) % 7 = 3")
    assert all(0 <= done <= 1 for done in told)
