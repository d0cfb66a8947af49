"""What is wrong with us is counted and told, and the program never hears of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aorta_collectors.observe.failures import Failures


def divide() -> None:
    raise ZeroDivisionError("by zero")


def test_the_first_is_told_with_its_place_and_all_are_counted() -> None:
    failures = Failures()
    for function in (len, divide, divide):
        failures.guarded(function, *([[]] if function is len else []))
    assert failures.count == 2
    assert failures.first == "ZeroDivisionError: by zero (test_failures.py:13)"


def test_a_message_that_cannot_be_told_is_left_out() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

    failures = Failures()
    failures.add(Mute())
    assert failures.first == "Mute"


@pytest.mark.parametrize("fails", [divide, lambda: [[]][1]])
def test_at_the_end_of_the_stack_the_program_alone_meets_it(fails: Callable[[], None]) -> None:
    """However near to it a hook is called, what leaves it is at most what the call itself had raised."""
    failures = Failures()

    def deeper() -> int:
        try:
            failures.guarded(fails)
        except RecursionError:
            return -1  # there was no room for the call
        try:
            return deeper() + 1
        except RecursionError:
            return 0

    assert deeper() > 100
    assert failures.count > 100
