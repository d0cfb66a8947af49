"""Which module's calls are the steps, in loops of every kind."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from torch import nn

from tests.observe.watching import two_layers, watching

X = torch.ones(2, 4)


def steps_of(iteration: Callable[[], None], iterations: int = 10) -> list[int]:
    """Steps begun after each iteration."""
    counted = []
    with watching() as (observer, _):
        for _ in range(iterations):
            iteration()
            counted.append(observer.step)
    assert observer.errors == 0, observer.first_error
    return counted


@pytest.mark.parametrize("times", [2, 3, 5])
def test_one_that_is_trained_beside_the_driver_and_called_less_often_takes_over(times: int) -> None:
    critic, generator = two_layers(), nn.Linear(4, 4)

    def iteration() -> None:
        for _ in range(times):
            critic(X)
        critic(generator(X)).sum().backward()

    assert [after - before for before, after in pairwise(steps_of(iteration)[2:])] == [1] * 7


def test_one_that_is_evaluated_now_and_then_does_not() -> None:
    model, average = two_layers(), two_layers()

    def iteration() -> None:
        for _ in range(3):
            model(X).sum().backward()
        with torch.no_grad():
            average(X)

    assert steps_of(iteration)[-1] == 30


def test_nor_one_whose_parameters_are_frozen() -> None:
    model, judge = two_layers(), two_layers().requires_grad_(False)

    def iteration() -> None:
        model(X)
        judge(model(X).expand(2, 4)).sum().backward()

    assert steps_of(iteration)[-1] == 20


def test_nor_one_that_is_called_after_many_calls_of_the_driver() -> None:
    model, other = two_layers(), two_layers()

    def iteration() -> None:
        for _ in range(20):
            model(X).sum().backward()
        other(X).sum().backward()

    assert steps_of(iteration, 4)[-1] == 80


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_steps_without_gradients_are_evaluations(context: Callable[[], torch.no_grad]) -> None:
    model = two_layers()
    with watching() as (observer, seen):
        for _ in range(3):
            model(X).sum().backward()
            with context():
                model(X)
    assert observer.evaluations == 3
    assert [trace.evaluates for trace in seen.traces] == [False, True] * 3


def test_a_teacher_that_is_called_first_makes_no_evaluation_of_a_training_step() -> None:
    teacher, student = two_layers(), two_layers()
    with watching() as (observer, seen):
        for _ in range(3):
            with torch.no_grad():
                target = teacher(X)
            (student(X) - target).square().sum().backward()
    assert observer.evaluations == 0
    assert not any(trace.evaluates for trace in seen.traces)
