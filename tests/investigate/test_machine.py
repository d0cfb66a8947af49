"""What is recorded of the machine, and how two records are held against each other."""

from __future__ import annotations

import copy
from importlib.metadata import version
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aorta_collectors.investigate.machine import differences, environment_now

RECORDS = st.recursive(
    st.none() | st.integers(0, 2) | st.sampled_from("xy"),
    lambda inner: st.dictionaries(st.sampled_from("ab"), inner),
    max_leaves=6,
)


def without_nothing(record: Any) -> Any:
    """What is not there, and what is there and nothing, are the same."""
    if isinstance(record, dict):
        return {name: without_nothing(value) for name, value in record.items() if value is not None}
    return record


class TestEnvironment:
    def test_it_tells_machine_python_torch_packages_and_variables(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        monkeypatch.setenv("SECRET_TOKEN", "x")
        found = environment_now()
        assert found["torch"]["version"] == version("torch")
        assert found["packages"]["torch"] == version("torch")
        assert found["variables"]["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
        assert "SECRET_TOKEN" not in found["variables"]
        assert found["machine"]["cpus"] >= 1
        assert found["machine"]["memory_bytes"] > 0

    def test_a_file_named_torch_in_the_directory_is_not_asked(
        self, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "json.py").write_text("raise SystemExit(3)")
        monkeypatch.chdir(tmp_path)
        assert "version" in environment_now()["torch"]


class TestDifferences:
    @given(RECORDS)
    def test_a_record_does_not_differ_from_its_copy(self, record: Any) -> None:
        assert differences(record, copy.deepcopy(record)) == []

    @given(RECORDS, RECORDS)
    def test_records_that_differ_have_a_line_and_no_others_have(self, one: Any, other: Any) -> None:
        assert (differences(one, other) == []) == (without_nothing(one) == without_nothing(other))

    def test_lines_name_the_place_and_both_values(self) -> None:
        before = {"torch": {"version": "2.12", "threads": 2}, "packages": {"numpy": "1"}}
        now = {"torch": {"version": "2.13", "threads": 2}, "packages": {"numpy": "1", "scipy": "3"}}
        assert differences(before, now) == [
            "packages scipy: nothing before, 3 now",
            "torch version: 2.12 before, 2.13 now",
        ]
