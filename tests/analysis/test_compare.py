"""Comparing two captures: each record's outcome, what is no difference, the first one, and what is paired with what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aorta_collectors.analysis.compare import compare
from aorta_collectors.analysis.compare_pairs import paired
from aorta_collectors.analysis.compare_result import Compared, Comparison, Counts
from aorta_collectors.analysis.database import Database
from aorta_collectors.analysis.search import captures_below
from aorta_collectors.analysis.tolerance import tolerances
from tests.captured.synthetic import Record, record, write

Captured = Callable[[str], Path]


def comparison(
    a: Path, b: Path, *, rtol: float | None = None, atol: float | None = None, exact: bool = False, most: int = 20
) -> Comparison:
    pairing = paired(captures_below(a), captures_below(b))
    with Database(pairing.captures) as database:
        return compare(database, pairing, tolerances(rtol, atol), exact, most)


def of(
    place: Path,
    a: Sequence[Record],
    b: Sequence[Record],
    summary_a: Mapping[str, Any] | None = None,
    summary_b: Mapping[str, Any] | None = None,
    **options: Any,
) -> Compared:
    """The comparison of what one process left on each side."""
    left = write(place / "a", {0: a}, {0: summary_a or {}})
    right = write(place / "b", {0: b}, {0: summary_b or {}})
    (compared,) = comparison(left, right, **options).pairs
    return compared


def outcome(place: Path, a: Record, b: Record, **options: Any) -> tuple[str, str]:
    """What one record on each side comes to, and why."""
    compared = of(place, [a], [b], **options)
    (name,) = (name for name in ("matched", "mismatched", "inconclusive") if getattr(compared.counts, name))
    return name, compared.reasons[0]["reason"] if compared.reasons else ""


class TestOneRecordOnEachSide:
    @pytest.mark.parametrize(
        ("a", "b", "options", "expected"),
        [
            ({}, {}, {}, ("matched", "")),
            ({"high": 1.0}, {"high": 1.0 + 1e-6}, {}, ("matched", "")),
            ({"high": 1.0}, {"high": 1.0 + 1e-6}, {"exact": True}, ("mismatched", "values differ")),
            ({"high": 1.0}, {"high": 1.001}, {}, ("mismatched", "values differ")),
            ({"high": 1.0}, {"high": 1.001}, {"rtol": 0.01}, ("matched", "")),
            ({"high": 1e-7}, {"high": 9e-7}, {}, ("matched", "")),
            ({"high": 1e-7}, {"high": 9e-7}, {"atol": 0.0}, ("mismatched", "values differ")),
            ({"low": -0.5}, {"low": -0.25}, {}, ("mismatched", "values differ")),
            (
                {"high": 1.7e308, "dtype": "torch.float64"},
                {"high": -1.7e308, "low": -1.7e308, "dtype": "torch.float64"},
                {},
                ("mismatched", "values differ"),
            ),
            ({"high": 1.0, "dtype": "torch.bfloat16"}, {"high": 1.01}, {}, ("matched", "")),
            (
                {"high": 1.0, "dtype": "torch.bfloat16"},
                {"high": 1.0},
                {"exact": True},
                ("inconclusive", "dtypes differ"),
            ),
            (
                {"high": 1.0, "dtype": "torch.int64"},
                {"high": 1.0},
                {},
                ("inconclusive", "dtypes are of different kinds"),
            ),
            (
                {"high": 7.0, "dtype": "torch.int64"},
                {"high": 8.0, "dtype": "torch.int64"},
                {"rtol": 1.0},
                ("mismatched", "values differ"),
            ),
            ({"nans": 1}, {}, {}, ("mismatched", "bad on one side alone")),
            ({"nans": 1}, {"nans": 2}, {}, ("mismatched", "counts differ")),
            ({"nans": 1}, {"infs": 1}, {}, ("mismatched", "counts differ")),
            ({"huge": 1, "high": 2e10}, {"high": 2e10}, {}, ("mismatched", "counts differ")),
            ({"oob_count": 2}, {"oob_count": 3}, {}, ("mismatched", "counts differ")),
            ({"oob_count": 0}, {}, {}, ("matched", "")),
            ({"high": None, "nans": 8}, {"high": None, "nans": 8}, {}, ("matched", "")),
            ({"shape": [2, 4]}, {"shape": [4, 2]}, {}, ("inconclusive", "shapes differ")),
            ({"shape": [2, 4], "nans": 1}, {"shape": [4, 2]}, {}, ("mismatched", "bad on one side alone")),
            (
                {},
                {"finite_min": None},
                {},
                ("inconclusive", "a number is recorded on one side alone"),
            ),
            ({"finite_abs_max": 10**400}, {"finite_abs_max": 10**400}, {}, ("matched", "")),
            ({"finite_mean": 0.1, "finite_rms": 1.0}, {}, {}, ("matched", "")),
            (
                {"finite_mean": 0.1, "finite_rms": 1.0},
                {"finite_mean": 0.2, "finite_rms": 1.0},
                {},
                ("mismatched", "values differ"),
            ),
            (
                {"finite_mean": 0.0, "finite_rms": 1e6},
                {"finite_mean": 1.0, "finite_rms": 1e6},
                {},
                ("matched", ""),  # of what the mean is made of, that is a part in a million
            ),
        ],
    )
    def test_it_comes_to(
        self, tmp_path: Path, a: dict[str, Any], b: dict[str, Any], options: dict[str, Any], expected: tuple[str, str]
    ) -> None:
        assert outcome(tmp_path, record(1, **a), record(1, **b), **options) == expected

    @pytest.mark.parametrize(
        ("config", "more"),
        [({"huge_threshold": 1e3}, {"huge": 1}), ({"bounds": [{"pattern": "", "lo": 0, "hi": 9}]}, {"oob_count": 1})],
    )
    def test_what_is_out_of_a_limit_is_not_compared_where_the_limits_differ(
        self, tmp_path: Path, config: dict[str, Any], more: dict[str, Any]
    ) -> None:
        compared = of(tmp_path, [record(1, **more)], [record(1)], summary_a={"config": config})
        assert compared.counts == Counts(matched=1)


class TestWhatIsMissing:
    def test_a_layer_in_a_step_that_both_wrote(self, tmp_path: Path) -> None:
        both = [record(1, "a"), record(2, "a")]
        compared = of(tmp_path, [*both, record(2, "b", seq=1)], both)
        assert compared.counts == Counts(matched=2, missing_in_b=1)
        (tensor,) = compared.by_tensor
        assert (tensor["layer"], tensor["training_step"], tensor["missing_in_b"]) == ("b", 2, 1)

    def test_a_step_that_was_not_sampled_is_none(self, tmp_path: Path) -> None:
        compared = of(tmp_path, [record(step) for step in range(1, 41)], [record(20), record(40)])
        assert compared.counts == Counts(matched=2, not_recorded_in_b=38)
        assert compared.counts.all_matched
        assert compared.steps.thin

    @pytest.mark.parametrize("bad", [{"nans": 1}, {"oob_count": 1}])
    def test_clean_records_beside_a_bad_one_that_was_written_alone_are_none(
        self, tmp_path: Path, bad: dict[str, Any]
    ) -> None:
        a = [record(3, "a"), record(3, "b", seq=1, **bad)]
        compared = of(tmp_path, a, [record(3, "b", seq=1, **bad)])
        assert compared.counts == Counts(matched=1, not_recorded_in_b=1)

    def test_the_last_step_of_a_process_that_was_cut_off_is_none(self, tmp_path: Path) -> None:
        a = [record(step, layer, seq=seq) for step in (1, 2) for seq, layer in enumerate("ab")]
        assert of(tmp_path / "1", a, a[:-1]).counts == Counts(matched=3, missing_in_b=1)
        for number, summary in enumerate(({"status": "running"}, {"records_cut": 5})):
            compared = of(tmp_path / f"cut{number}", a, a[:-1], summary_b=summary)
            assert compared.counts == Counts(matched=3, not_recorded_in_b=1)

    def test_what_the_other_side_was_not_asked_to_watch_is_none(self, tmp_path: Path) -> None:
        a = [record(1, "a"), record(1, "b", seq=1)]
        config = {"config": {"groups": [{"names": ["a"]}]}}
        compared = of(tmp_path, a, [record(1, "a")], summary_b=config)
        assert compared.counts == Counts(matched=1, not_recorded_in_b=1)
        assert compared.reasons[0]["reason"] == "not watched"


class TestBadOnOneSideAlone:
    A = (record(1), record(18, nans=1, seq=3))
    B = (record(1), record(60))

    def test_a_step_that_the_other_went_through_without_a_bad_record_differs(self, tmp_path: Path) -> None:
        compared = of(tmp_path, self.A, self.B)
        assert compared.counts == Counts(matched=1, mismatched=1, not_recorded_in_a=1)
        assert compared.first is not None
        assert compared.first.place["step"] == 18
        assert compared.first.a is not None
        assert compared.first.a["nan_count"] == 1
        assert compared.first.b is None

    @pytest.mark.parametrize(
        "summary",
        [
            {"steps_seen": 17},
            {"steps_seen": 18, "status": "running"},
            {"records_cut": 1},
            {"write_error": "disk full"},
        ],
    )
    def test_not_where_the_other_may_not_have_got_there_or_may_not_have_written(
        self, tmp_path: Path, summary: dict[str, Any]
    ) -> None:
        compared = of(tmp_path, self.A, self.B[:1], summary_b={"steps_seen": 60, **summary})
        assert compared.counts == Counts(matched=1, not_recorded_in_b=1)

    def test_it_is_told_beside_the_first_difference_that_rounding_explains(self, tmp_path: Path) -> None:
        a = [record(step, high=1.0 + step / 10) for step in range(1, 6)] + [record(6, nans=1, high=1.0)]
        b = [record(step, high=1.0 + step / 11) for step in range(1, 7)]
        compared = of(tmp_path, a, b)
        assert compared.first is not None
        assert compared.first_bad is not None
        assert (compared.first.place["step"], compared.first_bad.place["step"]) == (1, 6)
        assert [before["training_step"] for before in compared.first_bad.before] == [3, 4, 5]
        assert compared.first_bad.before[-1]["a"]["finite_abs_max"] == 1.5


class TestOrder:
    def test_the_first_difference_is_that_in_order_of_step_and_place(self, tmp_path: Path) -> None:
        layers = ("z", "m", "a")
        a = [record(step, layer, seq=seq) for step in (1, 2, 10) for seq, layer in enumerate(layers)]
        b = [
            {**line, "finite_max": 2.0}
            if (line["step"], line["layer_name"]) in {(2, "m"), (2, "a"), (10, "z")}
            else line
            for line in a
        ]
        compared = of(tmp_path, a, b)
        assert compared.first is not None
        assert (compared.first.place["step"], compared.first.place["layer"]) == (2, "m")
        assert [before["training_step"] for before in compared.first.before] == [1]
        assert [row["layer"] for row in compared.by_tensor] == ["m", "a", "z"]
        assert [(row["training_step"], row["mismatched"]) for row in compared.by_step] == [(1, 0), (2, 2), (10, 1)]

    def test_evaluations_of_different_length_do_not_shift_the_training_steps(self, tmp_path: Path) -> None:
        def run(evaluations: int) -> list[Record]:
            more = {"evaluation": True}
            evaluated = [record(1 + n, high=9.0, evaluation_steps=n, **more) for n in range(1, evaluations + 1)]
            after = 2 + evaluations
            return [record(1), *evaluated, record(after, high=2.0, evaluation_steps=evaluations)]

        compared = of(tmp_path, run(1), run(3))
        assert compared.counts == Counts(matched=3, not_recorded_in_a=2)

    def test_calls_of_the_stock_logger_are_told_apart_by_their_order(self, tmp_path: Path) -> None:
        def run(*highs: float) -> list[Record]:
            lines = [record(1, seq=n, high=high) for n, high in enumerate(highs)]
            own = ("seq", "invocation", "module_path", "tensor_path")
            return [{name: value for name, value in line.items() if name not in own} for line in lines]

        assert of(tmp_path / "1", run(1.0, 2.0, 3.0), run(1.0, 2.0, 3.0)).counts == Counts(matched=3)
        assert of(tmp_path / "2", run(1.0, 2.0, 3.0), run(1.0, 5.0, 3.0)).counts == Counts(matched=2, mismatched=1)

    def test_followed_tensors_are_matched_by_batch_and_stage(self, tmp_path: Path) -> None:
        def run(shift: int) -> list[Record]:
            entry = {"direction": "pipeline", "role": "track", "invocation": 0}
            return [
                record(1, seq=seq, phase=phase, batch_id=batch + shift, high=float(batch + len(phase)), **entry)
                for seq, (phase, batch) in enumerate((("copy", 2), ("copy", 3), ("forward", 1)))
            ]

        assert of(tmp_path / "1", run(0), run(0)).counts == Counts(matched=3)
        assert of(tmp_path / "2", run(0), run(10)).counts == Counts(missing_in_a=3, missing_in_b=3)

    def test_names_that_look_like_sql_are_names(self, tmp_path: Path) -> None:
        names = ["'; DROP TABLE records; --", 'a"b', "\x1b[31mred", "层", ""]
        lines = [record(1, name, seq=seq) for seq, name in enumerate(names)]
        assert of(tmp_path, lines, lines).counts == Counts(matched=5)


_LAYERS = st.sampled_from("abc")
_LINES = st.dictionaries(
    st.tuples(st.integers(1, 4), _LAYERS), st.tuples(st.sampled_from([1.0, 1.5, 2.0]), st.integers(0, 1)), max_size=12
)


@given(a=_LINES, b=_LINES)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_outcomes_are_those_of_a_comparison_in_plain_python(
    tmp_path_factory: pytest.TempPathFactory,
    a: dict[tuple[int, str], tuple[float, int]],
    b: dict[tuple[int, str], tuple[float, int]],
) -> None:
    def lines(of_side: dict[tuple[int, str], tuple[float, int]]) -> list[Record]:
        return [
            record(step, layer, seq="abc".index(layer), high=high, nans=nans)
            for (step, layer), (high, nans) in sorted(of_side.items())
        ]

    everywhere = {"watched_names": ["a", "b", "c"], "channels": ["act"], "steps_seen": 4}
    compared = of(tmp_path_factory.mktemp("property"), lines(a), lines(b), everywhere, everywhere)

    expected: Counter[str] = Counter()
    firsts = []
    for key in a.keys() | b.keys():
        if key in a and key in b:
            name = "matched" if a[key] == b[key] else "mismatched"
        else:
            lacking, there, side = (b, a, "b") if key in a else (a, b, "a")
            if any(step == key[0] and not nans for (step, _), (_, nans) in lacking.items()):
                name = f"missing_in_{side}"
            else:
                name = "mismatched" if there[key][1] else f"not_recorded_in_{side}"
        expected[name] += 1
        if name == "mismatched":
            firsts.append(key)
    assert compared.counts == Counts(**expected)
    assert (compared.first is None) == (not firsts)
    if compared.first is not None:
        assert (compared.first.place["step"], compared.first.place["layer"]) == min(firsts)


class TestPairing:
    def names(
        self, a: Path, b: Path, only_a: Mapping[str, Any] | None = None, only_b: Mapping[str, Any] | None = None
    ) -> tuple[list[tuple[str, str]], tuple[str, ...], tuple[str, ...]]:
        pairing = paired(captures_below(a).only(**only_a or {}), captures_below(b).only(**only_b or {}))
        return [(pair.a.name, pair.b.name) for pair in pairing.pairs], pairing.only_a, pairing.only_b

    def test_ranks_of_two_launches_by_their_number(self, tmp_path: Path) -> None:
        a = write(tmp_path / "a", {0: [record(1)], 1: [record(1)]})
        b = write(tmp_path / "b", {1: [record(1)], 2: [record(1)]})
        assert self.names(a, b) == ([("rank 1", "rank 1")], ("rank 0",), ("rank 2",))

    def test_one_rank_with_another(self, tmp_path: Path) -> None:
        a = write(tmp_path / "a", {0: [record(1)], 1: [record(1, high=2.0)]})
        pairs, *only = self.names(a, a, {"ranks": [0]}, {"ranks": [1]})
        assert (pairs, only) == ([("rank 0", "rank 1")], [(), ()])

    def test_a_process_with_itself_matches(self, tmp_path: Path) -> None:
        a = write(tmp_path / "a", {0: [record(1), record(2, nans=3)]})
        (compared,) = comparison(a, a).pairs
        assert compared.counts == Counts(matched=2)

    def test_cells_of_a_run_by_name_and_two_cells_whatever_theirs(self, captured: Captured) -> None:
        run = captured("mitigations")
        pairs, *only = self.names(run, run, {"cells": ["none-none", "warmup-none"]})
        assert pairs == [("none-none, trial 0", "none-none, trial 0"), ("warmup-none, trial 0", "warmup-none, trial 0")]
        assert len(only[1]) == 4
        pairs, *only = self.names(run, run, {"cells": ["none-none"]}, {"cells": ["warmup-none"]})
        assert (pairs, only) == ([("none-none, trial 0", "warmup-none, trial 0")], [(), ()])

    def test_nothing_in_common_is_no_match(self, captured: Captured, tmp_path: Path) -> None:
        found = comparison(write(tmp_path / "a", {0: []}), captured("mitigations"))
        assert (found.pairs, found.all_matched) == ((), False)


def test_how_far_the_largest_numbers_are_apart_is_a_number(tmp_path: Path) -> None:
    most = {"dtype": "torch.float64", "high": 1.7e308}
    compared = of(tmp_path, [record(1, **most)], [record(1, **{**most, "high": -1.7e308, "low": -1.7e308})])
    assert compared.by_step[0]["deviation"] == 2.0


def test_two_processes_without_records_are_no_match(tmp_path: Path) -> None:
    assert not of(tmp_path, [], []).counts.all_matched


def test_lists_are_as_long_as_asked_for_and_say_how_much_there_is(tmp_path: Path) -> None:
    a = [record(step, f"layer{n}", seq=n) for step in range(1, 8) for n in range(9)]
    b = [{**line, "finite_max": 3.0} for line in a]
    compared = of(tmp_path, a, b, most=4)
    assert (len(compared.by_step), compared.num_steps) == (4, 7)
    assert (len(compared.by_tensor), compared.num_tensors) == (4, 9)
