"""Layers and roles by name, with * for any characters and the nearest where there is none."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aorta_collectors.analysis.database import Database
from aorta_collectors.analysis.search import captures_below
from aorta_collectors.errors import ArtifactError
from aorta_collectors.export.selection import _has_in_order, condition
from tests.captured.synthetic import record, write

NAMES = ["blocks.0.attention", "blocks.1.attention", "head", "it's", "a*b", "axb"]


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    lines = [record(1, name, seq=seq, role="act" if seq else "igrad") for seq, name in enumerate(NAMES)]
    with Database(captures_below(write(tmp_path / "in", {0: lines}))) as opened:
        yield opened


@pytest.mark.parametrize(
    ("layers", "roles", "found"),
    [
        ([], [], NAMES),
        (["blocks.*"], [], NAMES[:2]),
        (["blocks.*"], ["act"], NAMES[1:2]),
        (["it's", "head"], [], ["head", "it's"]),
        (["a*b"], [], ["a*b"]),  # a name as it is goes before a pattern
        (["*"], ["igrad"], NAMES[:1]),
    ],
)
def test_records_are_those_of_the_layers_and_roles(
    database: Database, layers: list[str], roles: list[str], found: list[str]
) -> None:
    rows = database.rows(f"SELECT layer FROM records WHERE {condition(database, layers, roles)}")
    assert sorted(layer for (layer,) in rows) == sorted(found)


def test_a_name_that_is_not_there_is_an_error_with_the_nearest(database: Database) -> None:
    with pytest.raises(ArtifactError, match=r"blocks\.0\.atention.*blocks\.0\.attention"):
        condition(database, ["blocks.0.atention"], [])
    with pytest.raises(ArtifactError, match="'weight'; there is: act, igrad"):
        condition(database, [], ["weight"])
    with pytest.raises(ArtifactError, match="among 6"):
        condition(database, ["x.*.y"], [])


@given(st.text("ab.*", max_size=6), st.text("ab.", max_size=8))
def test_a_star_stands_for_any_characters(pattern: str, name: str) -> None:
    expected = re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), name) is not None
    if "*" in pattern:
        assert _has_in_order(name, pattern.split("*")) == expected
