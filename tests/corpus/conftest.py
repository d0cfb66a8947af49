"""Runs the cases of a test module ahead of the tests that ask for them, so that two cores are busy."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, TypeVar

import pytest

from tests.corpus.runs import Case, Forks

T = TypeVar("T")
#: A worker of pytest's own runs one test after the other, so that it has no use for a second process.
AT_ONCE = 1 if "PYTEST_XDIST_WORKER" in os.environ else 2


class Ahead(Generic[T]):
    """Calls `function` for each of `cases` in turn, and gives out what it returned; others wait until asked for."""

    def __init__(self, function: Callable[[Case], T], cases: list[Case]) -> None:
        self._function = function
        self._pool = ThreadPoolExecutor(AT_ONCE)
        self._begun = {case: self._pool.submit(function, case) for case in cases}

    def __call__(self, case: Case) -> T:
        begun = self._begun.get(case)
        return begun.result() if begun is not None else self._function(case)

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    forks = Forks(AT_ONCE)
    yield forks
    forks.close()


@pytest.fixture(scope="module")
def cases_to_run(request: pytest.FixtureRequest) -> list[Case]:
    """The cases that the tests of this module are going to ask for; none where pytest's own workers share them out."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        return []
    specs: list[Any] = [getattr(item, "callspec", None) for item in request.session.items if item.path == request.path]
    return [spec.params["case"] for spec in specs if spec is not None]
