"""The layers of a step in execution order: which process, which step, growth from one to the next, and what spreads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aorta_collectors.analysis.database import Database
from aorta_collectors.analysis.layers import Layers, layers
from aorta_collectors.analysis.search import captures_below
from aorta_collectors.errors import ArtifactError
from tests.captured.synthetic import record, write


def asked(path: Path, step: int | None = None, *roles: str) -> Layers:
    with Database(captures_below(path)) as database:
        return layers(database, step, roles)


magnitudes = st.one_of(st.none(), st.sampled_from([0.0, 0.25, 1.0, 1e4, 1e38]))


@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(magnitudes, st.booleans()), min_size=1, max_size=8), st.integers(1, 3))
def test_growth_and_what_is_bad_since_when(
    tmp_path_factory: pytest.TempPathFactory, of_layers: list[tuple[float | None, bool]], spreads_at: int
) -> None:
    """Layers are seen in the order of seq, whatever that of their names; each bad one is so from `spreads_at` on."""
    names = [f"layer{len(of_layers) - index}" for index in range(len(of_layers))]
    directory = write(
        tmp_path_factory.mktemp("layers"),
        {
            0: [
                record(step, name, seq=seq, high=high, nans=int(bad and step >= spreads_at))
                for step in (1, 2, 3)
                for seq, (name, (high, bad)) in enumerate(zip(names, of_layers, strict=True))
            ]
        },
    )
    found = asked(directory, 3)
    (spread,) = found.by_role
    assert [row.tensor.layer for row in spread.rows] == names
    assert [row.bad_since for row in spread.rows] == [spreads_at if bad else None for _, bad in of_layers]
    bad = [name for name, (_, is_bad) in zip(names, of_layers, strict=True) if is_bad]
    assert (spread.bad, spread.tensors) == (len(bad), len(names))
    assert [row.tensor.layer for row in spread.rows if row.begins] == bad[:1]
    before: float | None = None
    for row, (high, _) in zip(spread.rows, of_layers, strict=True):
        assert row.growth == (pytest.approx(high / before) if high and before else None)
        before = high or before


class TestTheStep:
    def test_is_the_one_where_bad_begins(self, tmp_path: Path) -> None:
        write(tmp_path, {0: [record(step, name, nans=int(step >= 4)) for step in range(1, 9) for name in "ab"]})
        found = asked(tmp_path)
        assert (found.step, found.first_step, found.last_step) == (4, 1, 8)

    def test_is_the_last_where_nothing_is_bad(self, tmp_path: Path) -> None:
        write(tmp_path, {0: [record(step) for step in (1, 5)]})
        found = asked(tmp_path)
        assert (found.step, found.first_bad) == (5, None)

    def test_that_was_not_recorded_is_told_with_those_nearest(self, tmp_path: Path) -> None:
        write(tmp_path, {0: [record(step) for step in (10, 20, 30)]})
        with pytest.raises(ArtifactError, match="step 22 of rank0; the nearest steps that are: 20 and 30"):
            asked(tmp_path, 22)

    def test_tells_what_it_has_no_record_of(self, tmp_path: Path) -> None:
        write(tmp_path, {0: [record(1, "a"), record(1, "b", seq=1), record(2, "b", nans=1)]})
        found = asked(tmp_path)
        assert ([row.tensor.layer for row in found.by_role[0].rows], found.absent) == (["b"], 1)


class TestTheProcess:
    def test_is_the_rank_that_is_bad_first_by_step(self, tmp_path: Path) -> None:
        write(
            tmp_path, {rank: [record(step, nans=int(step >= 5 - rank)) for step in range(1, 8)] for rank in (0, 1, 2)}
        )
        found = asked(tmp_path)
        assert (found.rank, found.step, found.ranks) == (2, 3, 3)

    def test_is_the_one_that_is_largest_where_none_is_bad(self, tmp_path: Path) -> None:
        write(tmp_path, {rank: [record(1, high=high)] for rank, high in enumerate([1.0, 40.0, 3.0])})
        assert asked(tmp_path).rank == 1

    def test_is_that_of_a_role_where_one_is_asked_for(self, tmp_path: Path) -> None:
        write(
            tmp_path,
            {
                0: [record(1, role="igrad", direction="bwd", nans=1)],
                1: [record(step, nans=int(step > 1)) for step in (1, 2)],
            },
        )
        assert (asked(tmp_path).rank, asked(tmp_path, None, "act").rank) == (0, 1)
        with pytest.raises(ArtifactError, match="role acts; there is: act, igrad"):
            asked(tmp_path, None, "acts")


@pytest.mark.parametrize("lines", ["", '{"type": "layer_step", "step": 3}\n'])
def test_without_records_of_layers_it_says_so(tmp_path: Path, lines: str) -> None:
    (write(tmp_path, {0: []}) / "layers_rank0.jsonl").write_text(lines)
    with pytest.raises(ArtifactError, match="no records"):
        asked(tmp_path)


def test_calls_of_one_layer_are_one_row_at_its_first_place(tmp_path: Path) -> None:
    of_calls = [("a", 1, 1.0), ("b", 1, 2.0), ("a", 2, 8.0)]
    write(tmp_path, {0: [record(1, n, seq=seq, invocation=i, high=h) for seq, (n, i, h) in enumerate(of_calls)]})
    rows = asked(tmp_path).by_role[0].rows
    assert [(row.tensor.layer, row.calls, row.of.abs_max) for row in rows] == [("a", 2, 8), ("b", 1, 2)]


def test_records_of_the_stock_logger_stand_in_the_order_of_time(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            0: [
                {**record(1, name, seq=seq), "seq": None, "tensor_path": None, "invocation": None}
                for seq, name in enumerate("cab")
            ]
        },
    )
    assert [row.tensor.layer for row in asked(tmp_path).by_role[0].rows] == ["c", "a", "b"]


def test_the_overflowing_model_shows_the_gradient_and_where_it_comes_from(captured: Callable[[str], Path]) -> None:
    found = asked(captured("overflow"))
    assert found.first_bad is not None
    assert (found.cell, found.step, found.first_bad.tensor.role) == ("none-none", 18, "igrad")
    assert (found.other_trials, found.others_bad) == (1, 0)
    forward, backward = (next(s for s in found.by_role if s.role == role) for role in ("act", "igrad"))
    assert [row.tensor.layer for row in backward.rows if row.begins] == ["over_arch.model.1"]
    assert max(forward.rows, key=lambda row: row.growth or 0).tensor.layer == "over_arch.model.1"
