"""A profile held against a baseline: significance, the grade, and what has no counterpart."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aorta_collectors.analysis.numerics.significance import LEAST, holm, mann_whitney, median
from tests.analysis.profiled import compared, timed
from tests.numerics.synthetic import step_line, write

NOISE = [0.05 * random.Random(seed).random() for seed in range(40)]


def steps(ms: float, count: int = 30, seed: int = 0) -> list[float]:
    return [ms * (1 + NOISE[(seed + index) % len(NOISE)]) for index in range(count)]


def ways(a: int, b: int) -> list[int]:
    """How many orders of two samples have which U, by Mann and Whitney's own recursion."""
    table: dict[tuple[int, int], list[int]] = {}
    for m in range(a + 1):
        for n in range(b + 1):
            found = [0] * (a * b + 1)
            if m == 0 or n == 0:
                found[0] = 1
            else:
                for u in range(len(found)):
                    found[u] = (table[m - 1, n][u - n] if u >= n else 0) + table[m, n - 1][u]
            table[m, n] = found
    return table[a, b]


class TestMannWhitney:
    @given(st.lists(st.integers(), min_size=16, max_size=24, unique=True))
    def test_is_near_the_exact_test_where_nothing_ties(self, values: list[int]) -> None:
        a, b = values[:8], values[8:]
        u = sum(x > y for x in a for y in b)
        counts = ways(len(a), len(b))
        most = max(u, len(a) * len(b) - u)
        exact = min(1.0, 2 * sum(counts[most:]) / sum(counts))
        assert mann_whitney(a, b) == pytest.approx(exact, abs=0.02)

    def test_published_example(self) -> None:
        # Ranks 1 to 8 against 9 to 16: U = 0, of which the normal approximation with continuity gives 0.00094.
        found = mann_whitney(list(range(8)), list(range(8, 16)))
        assert found == pytest.approx(0.000939, abs=2e-5)

    def test_too_few_and_all_equal(self) -> None:
        assert mann_whitney([1.0] * (LEAST - 1), [2.0] * 50) is None
        assert mann_whitney([1.0] * 10, [1.0] * 10) == 1.0

    @given(st.lists(st.floats(0, 100), min_size=8, max_size=30), st.lists(st.floats(0, 100), min_size=8, max_size=30))
    def test_sides_do_not_matter_and_it_is_a_probability(self, a: list[float], b: list[float]) -> None:
        found = mann_whitney(a, b)
        assert found is not None
        assert 0 <= found <= 1
        assert found == pytest.approx(mann_whitney(b, a))


@given(st.lists(st.one_of(st.none(), st.floats(0, 1)), max_size=20))
def test_holm_rejects_what_the_stepwise_procedure_rejects(p_values: list[float | None]) -> None:
    adjusted = holm(p_values)
    known = sorted((value, index) for index, value in enumerate(p_values) if value is not None)
    rejected = set()
    for step, (value, index) in enumerate(known):
        if value * (len(known) - step) >= 0.05:
            break
        rejected.add(index)
    assert {index for index, value in enumerate(adjusted) if value is not None and value < 0.05} == rejected
    assert [value is None for value in adjusted] == [value is None for value in p_values]


def test_median() -> None:
    assert [median([]), median([3, 1, 2]), median([4, 1, 2, 3])] == [None, 2, 2.5]


class TestTheGrade:
    @pytest.mark.parametrize(
        ("factor", "grade"),
        [(0.8, "A"), (1.0, "A"), (1.04, "B"), (1.08, "C"), (1.2, "D"), (1.4, "E"), (2.0, "F")],
    )
    def test_is_of_the_whole_step(self, tmp_path: Path, factor: float, grade: str) -> None:
        found = compared(timed(tmp_path / "a", steps(10)), timed(tmp_path / "b", steps(10 * factor)))
        assert (found.grade, found.per) == (grade, "step")
        assert found.ratio == pytest.approx(factor, rel=1e-3)
        assert found.step is not None
        assert found.step.verdict == ("same" if factor == 1 else "faster" if factor < 1 else "slower")

    def test_is_a_where_the_difference_is_chance(self, tmp_path: Path) -> None:
        found = compared(timed(tmp_path / "a", steps(10)), timed(tmp_path / "b", [*steps(10, 29, seed=7), 11.2]))
        assert found.step is not None
        assert (found.grade, found.step.verdict) == ("A", "same")

    def test_is_a_tokens_where_steps_have_different_numbers_of_them(self, tmp_path: Path) -> None:
        half = timed(tmp_path / "b", steps(6), tokens=32)
        found = compared(timed(tmp_path / "a", steps(10)), half)
        assert (found.per, found.grade) == ("token", "D")
        assert found.ratio == pytest.approx(1.2, rel=1e-3)

    def test_is_not_given_with_too_few_steps(self, tmp_path: Path) -> None:
        found = compared(timed(tmp_path / "a", steps(10)), timed(tmp_path / "b", steps(20, LEAST - 1)))
        assert found.grade is None
        assert found.step is not None
        assert (found.step.verdict, found.step.steps, found.step.p_value) == ("unknown", LEAST - 1, None)

    def test_nothing_is_there_without_lines_of_steps(self, tmp_path: Path) -> None:
        write(tmp_path / "a", config={"step_metrics": "off"})
        found = compared(tmp_path / "a", timed(tmp_path / "b", steps(10)))
        assert (found.grade, found.step, found.phases) == (None, None, ())

    def test_leaves_out_steps_in_which_operations_were_counted_and_evaluation(self, tmp_path: Path) -> None:
        timed(tmp_path / "a", steps(10))
        lines = [step_line(step, step_ms=ms) for step, ms in enumerate(steps(10), start=1)]
        lines += [step_line(40 + index, step_ms=500.0, is_counted=True) for index in range(30)]
        lines += [step_line(80 + index, step_ms=500.0, kind="evaluation") for index in range(30)]
        found = compared(tmp_path / "a", write(tmp_path / "b", step_lines=lines, config={"profile": "deferred"}))
        assert found.ratio == pytest.approx(1, rel=1e-3)


class TestBricks:
    def test_that_became_slower_are_told_from_those_that_did_not(self, tmp_path: Path) -> None:
        before = timed(tmp_path / "a", steps(10), {"a": steps(1000), "b": steps(1000), "gone": steps(5)})
        after = timed(tmp_path / "b", steps(10.5), {"a": steps(1500), "b": steps(1000, seed=3), "new": steps(5)})
        found = compared(before, after)
        verdicts = {change.name: (change.verdict, change.ratio) for change in found.bricks}
        assert verdicts["a"] == ("slower", pytest.approx(1.5, rel=1e-2))
        assert verdicts["b"][0] == "same"
        assert (found.missing, found.new) == (("gone",), ("new",))
        assert found.bricks[0].name == "a"
        assert found.bricks[0].difference_ms == pytest.approx(0.5, rel=5e-2)

    def test_own_time_is_without_the_bricks_inside(self, tmp_path: Path) -> None:
        from tests.numerics.synthetic import brick, span

        def run(path: Path, inner_us: float) -> Path:
            spans = []
            for step in range(1, 13):
                place = {"step": step, "direction": "forward"}
                spans.append(span("Block", "phase", 2 * step, duration_us=100 + inner_us, layer="h.0", **place))
                spans.append(
                    span("MLP", "brick", 2 * step + 1, parent=2 * step, duration_us=inner_us, layer="h.0.mlp", **place)
                )
            bricks = [brick("h.0"), brick("h.0.mlp")]
            return write(path, steps=12, config={"profile": "deferred"}, spans=spans, bricks=bricks)

        found = compared(run(tmp_path / "a", 200), run(tmp_path / "b", 300))
        times = {change.name: (change.before_ms, change.after_ms, change.verdict) for change in found.bricks}
        assert times == {"h.0": (0.1, 0.1, "same"), "h.0.mlp": (0.2, 0.3, "slower")}

    def test_without_spans_means_are_compared_and_nothing_is_significant(self, tmp_path: Path) -> None:
        paths = [
            timed(tmp_path / name, steps(10), {"a": steps(1000 * factor)}) for name, factor in (("a", 1), ("b", 2))
        ]
        (paths[1] / "spans_rank0.jsonl").unlink()
        (change,) = compared(*paths).bricks
        assert (change.verdict, change.steps) == ("unknown", 0)
        assert change.ratio == pytest.approx(2, rel=1e-2)


def test_of_ranks_a_step_is_as_long_as_the_longest(tmp_path: Path) -> None:
    timed(tmp_path / "a", steps(10))
    write(tmp_path / "b", ranks=2, steps=30, config={"profile": "deferred"})
    for rank, ms in ((0, 10), (1, 20)):
        path = tmp_path / "b" / f"steps_rank{rank}.jsonl"
        path.write_text(path.read_text().replace('"step_ms": 10.0', f'"step_ms": {ms}.0'))
    found = compared(tmp_path / "a", tmp_path / "b")
    assert found.step is not None
    assert found.step.after_ms == 20
    assert "ranks: 1 before, 2 now" in found.unlike
