"""Which steps are looked at, and how a run that never ends is told of to its end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aorta_collectors.memory.config import Config
from aorta_collectors.memory.steps import Steps


@pytest.mark.parametrize(
    ("words", "looked_at"),
    [
        (None, [0, 1, 2, 3, 4, 5, 6, 7]),
        (("3",), [3]),
        (("1-2", "5"), [1, 2, 5]),
        (("6-",), [6, 7]),
        (("2-3", "3-4", "9"), [2, 3, 4]),
    ],
)
def test_words_name_steps(words: tuple[str, ...] | None, looked_at: list[int]) -> None:
    config = Config(steps=words)
    assert [step for step in range(8) if config.looks_at_step(step)] == looked_at


@given(st.integers(20, 300), st.integers(1, 5))
def test_a_file_never_gets_longer_than_it_may_and_its_beginning_is_whole(most: int, points: int) -> None:
    warnings: list[str] = []
    steps = Steps(Config(), warnings.append, most)
    written, looked_at = 0, []
    for step in range(1, 40 * most):
        if steps.looks_at(step, written):
            looked_at.append(step)
            written += points
    assert written < most + points
    whole = most // (2 * points)
    assert looked_at[:whole] == list(range(1, whole + 1))
    assert steps.left_out == 40 * most - 1 - len(looked_at)
    assert 1 <= len(warnings) <= 4
    assert warnings[0].endswith("every 10th step is looked at")


def test_steps_that_are_not_asked_for_are_not_left_out() -> None:
    steps = Steps(Config(steps=("2",)), print)
    assert [steps.looks_at(step, 0) for step in (1, 2, 3)] == [False, True, False]
    assert steps.left_out == 0
