"""The engine's `origin` is the truth in each case of the corpus, and the observed program does not change.

`python -m tests.corpus.score` shows the same as a table.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.corpus import runs
from tests.corpus.conftest import Ahead
from tests.corpus.runs import Case, Forks, Place
from tests.support import Ran


@pytest.fixture(scope="module")
def observed(
    cases_to_run: list[Case], forks: Forks, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Ahead[tuple[Ran, Ran, Place | None]]]:
    folder = tmp_path_factory.mktemp("observed")

    def observe(case: Case) -> tuple[Ran, Ran, Place | None]:
        directory = folder / case.name
        directory.mkdir()
        return runs.bare(case, directory, forks), *runs.engine(case, directory, forks)

    ahead = Ahead(observe, cases_to_run)
    yield ahead
    ahead.close()


@pytest.mark.parametrize("case", runs.all_cases(), ids=lambda case: case.name)
def test_the_origin_is_found_and_the_program_does_not_change(
    case: Case, observed: Ahead[tuple[Ran, Ran, Place | None]]
) -> None:
    bare, ran, origin = observed(case)
    assert (ran.code, ran.out) == (bare.code, bare.out), ran.err
    assert origin == case.truth, ran.err
