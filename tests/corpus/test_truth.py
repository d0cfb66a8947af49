"""The truths of the corpus hold: a checker that looks at every value, and knows torch alone, finds the same places."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.corpus import runs
from tests.corpus.conftest import Ahead
from tests.corpus.runs import Case, Forks, Place
from tests.support import Ran


@pytest.fixture(scope="module")
def checked(
    cases_to_run: list[Case], forks: Forks, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Ahead[tuple[Ran, Place | None]]]:
    folder = tmp_path_factory.mktemp("checked")

    def check(case: Case) -> tuple[Ran, Place | None]:
        directory = folder / case.name
        directory.mkdir()
        return runs.brute_force(case, directory, forks)

    ahead = Ahead(check, cases_to_run)
    yield ahead
    ahead.close()


@pytest.mark.parametrize("case", runs.all_cases(), ids=lambda case: case.name)
def test_brute_force_agrees(case: Case, checked: Ahead[tuple[Ran, Place | None]]) -> None:
    ran, found = checked(case)
    ran.ok()
    assert found == case.truth


def test_each_script_has_a_truth_and_says_what_is_wrong_with_it() -> None:
    cases = runs.all_cases()
    assert sorted(case.script for case in cases) == sorted((runs.HERE / "cases").glob("*.py"))
    for case in cases:
        source = case.script.read_text()
        said = ast.get_docstring(ast.parse(source))
        assert said, case.name
        assert said.startswith("Clean: ") == (case.truth is None), case.name
        assert "aorta" not in source, case.name


def test_the_corpus_is_varied() -> None:
    places = [case.truth for case in runs.all_cases()]
    assert {place.stage for place in places if place} == set(runs.STAGES)
    assert len(places) >= 30
    assert places.count(None) >= 8
