"""Trajectories, held against what plain Python makes of the same records, and against the runs of the recipes."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aorta_collectors.analysis.database import Database
from aorta_collectors.analysis.search import captures_below
from aorta_collectors.analysis.series import Trajectory
from aorta_collectors.analysis.trajectory import Wanted, trajectory
from aorta_collectors.errors import ArtifactError
from tests.captured.synthetic import Record, record, write


def asked(path: Path, *layers: str, **more: Any) -> Trajectory:
    with Database(captures_below(path)) as database:
        return trajectory(database, Wanted(layers, **more))


def seen(step: int, high: float | None, nans: int, call: int) -> Record:
    return record(step, high=high, nans=nans, seq=call, invocation=call)


calls = st.lists(
    st.tuples(
        st.integers(1, 40),
        st.one_of(st.none(), st.sampled_from([0.0, 1e-30, 0.5, 3.0, 1e38])),
        st.sampled_from([0, 0, 2]),
    ),
    min_size=1,
    max_size=40,
)


class TestOfOneTensor:
    @settings(max_examples=15, deadline=None)
    @given(calls, st.integers(1, 12))
    def test_is_what_a_loop_over_the_records_finds(
        self, tmp_path_factory: pytest.TempPathFactory, made: list[tuple[int, float | None, int]], points: int
    ) -> None:
        made = sorted(made, key=lambda entry: entry[0])
        directory = write(
            tmp_path_factory.mktemp("one"), {0: [seen(*entry, call) for call, entry in enumerate(made, start=1)]}
        )
        found = asked(directory, "a", points=points, every=True)
        (series,) = found.series

        steps: dict[int, list[tuple[float | None, int]]] = {}
        for step, high, nans in made:
            steps.setdefault(step, []).append((high, nans))
        peaks = {
            step: max((high for high, _ in all_ if high is not None), default=None) for step, all_ in steps.items()
        }
        bad = [step for step, all_ in steps.items() if any(nans for _, nans in all_)]
        assert {row.step: row.of.abs_max for row in series.rows} == peaks
        assert {row.step: row.of.nans for row in series.rows} == {s: sum(n for _, n in a) for s, a in steps.items()}
        assert [row.step for row in series.rows if row.of.kind == "nan"] == bad
        assert series.first_bad == min(bad, default=None)
        assert series.peak == max((peak for peak in peaks.values() if peak is not None), default=None)
        for before, row in zip(series.rows, series.rows[1:], strict=False):
            if row.of.abs_max and before.of.abs_max:
                grown = row.of.abs_max / before.of.abs_max
                assert row.growth == pytest.approx(grown ** (1 / (row.step - before.step)))
            else:
                assert row.growth is None

        assert len(series.points) <= points
        assert sum(point.steps for point in series.points) == len(steps) == series.steps
        assert {point.bad_step for point in series.points if point.of.kind} <= set(bad)
        assert series.first_bad == min((p.bad_step for p in series.points if p.bad_step is not None), default=None)
        assert max((p.of.abs_max for p in series.points if p.of.abs_max is not None), default=None) == series.peak

    def test_a_call_within_the_step_can_be_singled_out(self, tmp_path: Path) -> None:
        write(tmp_path, {0: [seen(1, 2.0, 0, 1), seen(1, 5.0, 3, 2)]})
        assert asked(tmp_path, "a").series[0].rows[0].of.abs_max == 5
        (first,) = asked(tmp_path, "a", invocation=1).series
        assert (first.invocation, first.rows[0].of.abs_max, first.first_bad) == (1, 2, None)
        with pytest.raises(ArtifactError, match="nothing is recorded of call 3 of a; there are steps 1 to 1"):
            asked(tmp_path, "a", invocation=3)

    def test_headroom_is_bits_up_to_the_largest_number(self, tmp_path: Path) -> None:
        write(tmp_path, {0: [record(1, high=65504 / 8, dtype="torch.float16")]})
        headroom = asked(tmp_path, "a").series[0].rows[0].of.headroom
        assert headroom is not None
        assert math.isclose(headroom, 3)

    def test_rows_are_those_around_the_first_bad_step(self, tmp_path: Path) -> None:
        write(tmp_path, {0: [record(step, nans=int(step >= 50)) for step in range(1, 101)]})
        assert [row.step for row in asked(tmp_path, "a").series[0].rows] == list(range(36, 56))
        assert [row.step for row in asked(tmp_path, "a", tail=2).series[0].rows] == [99, 100]
        assert [row.step for row in asked(tmp_path, "a", last=30).series[0].rows] == list(range(11, 31))


class TestWhatIsMeant:
    @pytest.fixture
    def named(self, tmp_path: Path) -> Path:
        names = ["1", "layers.1", "layers.1.scores", "layers.2.scores", "it's\x1b[31m <b>"]
        return write(tmp_path, {0: [record(1, name, seq=seq) for seq, name in enumerate(names)]})

    @pytest.mark.parametrize(
        ("pattern", "layers"),
        [
            ("1", {"1"}),  # an exact name is that layer alone
            ("scores", {"layers.1.scores", "layers.2.scores"}),
            ("2.scores", {"layers.2.scores"}),
            ("layers.*", {"layers.1", "layers.1.scores", "layers.2.scores"}),
            ("it's\x1b[31m <b>", {"it's\x1b[31m <b>"}),
        ],
    )
    def test_a_name_a_pattern_or_an_end(self, named: Path, pattern: str, layers: set[str]) -> None:
        assert {series.layer for series in asked(named, pattern).series} == layers

    def test_an_unknown_name_is_told_with_those_near(self, named: Path) -> None:
        with pytest.raises(
            ArtifactError, match=r"layer 'scroes'; near: layers\.1\.scores, layers\.2\.scores; .* --all"
        ):
            asked(named, "scroes")

    def test_names_of_wrappers_are_known_too(self, tmp_path: Path) -> None:
        write(tmp_path, {0: [record(1, "module.a", module_path="a"), record(1, "b", seq=1, module_path=None)]})
        assert [series.layer for series in asked(tmp_path, "module.a", "b").series] == ["a", "b"]

    def test_act_unless_a_role_is_named(self, tmp_path: Path) -> None:
        write(
            tmp_path,
            {
                0: [
                    record(1, "a"),
                    record(1, "a", seq=1, role="igrad", direction="bwd", nans=1),
                    record(1, "b", seq=2, role="weight", direction="param"),
                ]
            },
        )
        found = asked(tmp_path, "a", "b")
        assert [(series.layer, series.role) for series in found.series] == [("a", "act"), ("b", "weight")]
        assert [(entry.layer, entry.role, entry.first_bad) for entry in found.elsewhere] == [("a", "igrad", 1)]
        assert [series.role for series in asked(tmp_path, "a", roles=["igrad"]).series] == ["igrad"]
        with pytest.raises(ArtifactError, match="role 'acts' of a; there is: act, igrad"):
            asked(tmp_path, "a", roles=["acts"])

    def test_nothing_at_all_is_told(self, tmp_path: Path) -> None:
        write(tmp_path, {0: []})
        with pytest.raises(ArtifactError, match="no records"):
            asked(tmp_path, "a")


def test_ranks_that_are_alike_come_by_number(tmp_path: Path) -> None:
    write(tmp_path, {rank: [record(1)] for rank in (0, 2, 10)})
    assert [series.rank for series in asked(tmp_path, "a").series] == [0, 2, 10]


def test_each_process_shows_its_worst_before_any_shows_its_second(tmp_path: Path) -> None:
    good = [record(1, name, high=high, seq=seq) for seq, (name, high) in enumerate([("a", 1.0), ("b", 9.0)])]
    bad = [record(step, name, seq=seq, infs=int(step > seq)) for step in (1, 2) for seq, name in enumerate("ab")]
    write(tmp_path, {0: good, 1: bad})
    found = asked(tmp_path, "*", most=3)
    assert [(series.rank, series.layer, series.first_bad) for series in found.series] == [
        (1, "a", 1),
        (0, "b", None),
        (1, "b", 2),
    ]
    assert found.more == 1


def test_the_mitigation_that_helps_is_told_from_those_that_do_not(captured: Callable[[str], Path]) -> None:
    found = asked(captured("mitigations"), "scores", most=6)
    clean = {series.cell for series in found.series if series.first_bad is None}
    assert len(found.series) == len({series.cell for series in found.series}) == 6
    assert clean == {"fp32_scores-none"}
    assert {series.dtype for series in found.series if series.first_bad is None} == {"torch.float32"}


def test_a_followed_tensor_has_a_series_for_each_stage(captured: Callable[[str], Path]) -> None:
    found = asked(captured("pipeline"), "embedding_features")
    assert [series.place for series in found.series] == ["copy", "sparse_start", "sparse_wait", "forward"]
    assert sorted(series.first_bad or 0 for series in found.series) == [series.first_bad for series in found.series]
