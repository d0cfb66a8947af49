"""The order of runs: declared, balanced, reproducible."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aorta_collectors.investigate.design import KINDS, VARIANTS, Design, schedule_of
from aorta_collectors.investigate.statistics import LEAST

DESIGNS = st.builds(
    Design,
    order=st.sampled_from(["pair", "counterbalanced", "random"]),
    order_seed=st.integers(0, 2**40),
    repetitions=st.integers(1, 8),
    warm_up=st.integers(0, 2),
    observer_effect=st.booleans(),
    every_repetition=st.booleans(),
)


def counted(schedule: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [run for run in schedule if not run["warm_up"]]


def first_of(schedule: list[dict[str, Any]], repetition: int) -> dict[str, Any]:
    return next(run for run in counted(schedule) if run["repetition"] == repetition)


class TestSchedule:
    @given(DESIGNS, st.one_of(st.none(), st.integers(0, 2**40)))
    def test_every_variant_runs_as_often_as_declared_with_the_tool_and_without(self, design: Design, seed: Any) -> None:
        schedule = schedule_of(design, VARIANTS, seed)
        kinds = Counter((run["variant"], run["tool"], run["warm_up"]) for run in schedule)
        bare = 0 if not design.observer_effect else design.repetitions if design.every_repetition else 1
        for variant in VARIANTS:
            assert kinds[variant, True, False] == design.repetitions
            assert kinds[variant, False, False] == bare
            assert kinds[variant, True, True] == design.warm_up
        assert [run["number"] for run in schedule] == list(range(1, len(schedule) + 1))
        assert len({run["name"] for run in schedule}) == len(schedule)

    @given(DESIGNS, st.integers(0, 2**40))
    def test_all_runs_of_a_repetition_have_its_seed(self, design: Design, seed: int) -> None:
        assert all(run["seed"] == seed + run["repetition"] - 1 for run in schedule_of(design, VARIANTS, seed))

    @given(DESIGNS)
    def test_warm_up_comes_first_and_repetitions_in_their_order(self, design: Design) -> None:
        schedule = schedule_of(design, VARIANTS, None)
        assert [run["warm_up"] for run in schedule] == sorted((run["warm_up"] for run in schedule), reverse=True)
        repetitions = [run["repetition"] for run in counted(schedule)]
        assert repetitions == sorted(repetitions)

    @given(DESIGNS)
    def test_a_run_without_the_tool_stands_beside_the_one_with_it(self, design: Design) -> None:
        schedule = schedule_of(design, VARIANTS, None)
        for index, run in enumerate(schedule):
            if not run["tool"]:
                beside = schedule[max(0, index - 1)], schedule[min(index + 1, len(schedule) - 1)]
                pair = (run["variant"], run["repetition"], True, False)
                assert pair in [(one["variant"], one["repetition"], one["tool"], one["warm_up"]) for one in beside]

    @given(st.integers(1, 5), st.booleans())
    def test_counterbalanced_lets_each_variant_and_each_way_come_first_equally_often(
        self, half: int, bare: bool
    ) -> None:
        design = Design("counterbalanced", None, 2 * half, 0, bare, every_repetition=True)
        schedule = schedule_of(design, VARIANTS, None)
        first = Counter(first_of(schedule, repetition)["variant"] for repetition in range(1, 2 * half + 1))
        assert first == {"baseline": half, "candidate": half}
        if bare:
            for variant in VARIANTS:
                ways = [run["tool"] for run in schedule if run["variant"] == variant]
                assert Counter(ways[::2]) == {True: half, False: half}

    @given(DESIGNS)
    def test_the_baseline_comes_first_in_every_pair(self, design: Design) -> None:
        schedule = schedule_of(Design("pair", None, design.repetitions, 0, design.observer_effect), VARIANTS, None)
        assert all(first_of(schedule, number)["variant"] == "baseline" for number in range(1, design.repetitions + 1))

    @given(st.integers(0, 2**40))
    def test_a_random_order_is_that_of_its_seed(self, seed: int) -> None:
        design = Design("random", seed, 6, 0, observer_effect=True, every_repetition=True)
        assert schedule_of(design, VARIANTS, None) == schedule_of(design, VARIANTS, None)

    def test_random_orders_differ_from_seed_to_seed_and_within_one(self) -> None:
        def orders(seed: int) -> str:
            schedule = schedule_of(Design("random", seed, 12, 0, observer_effect=False), VARIANTS, None)
            return "".join(run["variant"][0] for run in schedule)

        assert len({orders(seed) for seed in range(20)}) > 15
        assert {"bc", "cb"} == {orders(3)[index : index + 2] for index in range(0, 24, 2)}

    def test_one_variant_alone_has_no_candidate(self) -> None:
        schedule = schedule_of(Design.of("memory"), ["baseline"], None)
        assert {run["variant"] for run in schedule} == {"baseline"}


class TestDefaults:
    @pytest.mark.parametrize("kind", KINDS)
    def test_noisy_kinds_take_turns_after_a_warm_up_and_the_others_are_one_pair(self, kind: str) -> None:
        design, noisy = Design.of(kind), kind in ("memory", "timing")
        assert (design.repetitions, design.warm_up) == ((LEAST, 1) if noisy else (1, 0))
        assert design.order == ("counterbalanced" if noisy else "pair")
        assert design.observer_effect
        bare = [run for run in schedule_of(design, VARIANTS, None) if not run["tool"]]
        assert len(bare) == (2 * LEAST if noisy else 2)

    def test_what_is_given_wins(self) -> None:
        design = Design.of("timing", order="random", order_seed=7, repetitions=2, warm_up=0, observer_effect=False)
        assert design.to_json() == {
            "order": "random",
            "order_seed": 7,
            "repetitions": 2,
            "warm_up": 0,
            "observer_effect": False,
        }

    def test_names_of_runs_say_what_they_are(self) -> None:
        names = [run["name"] for run in schedule_of(Design.of("timing", repetitions=1), VARIANTS, None)]
        assert names == [
            "001-baseline-warmup-1",
            "002-candidate-warmup-1",
            "003-baseline-1",
            "004-baseline-1-bare",
            "005-candidate-1",
            "006-candidate-1-bare",
        ]
