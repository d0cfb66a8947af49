"""metadata.json and run.json: checked, atomic, and read without following links."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aorta_collectors.errors import ArtifactError
from aorta_collectors.investigate.digests import sha256_below
from aorta_collectors.investigate.files import Investigation, Run, open_investigation, write_metadata, write_run
from tests.investigate.support import declared

RECORD: dict[str, Any] = {
    "schema_version": 1,
    "number": 1,
    "name": "001-baseline-1",
    "attempt": 1,
    "variant": "baseline",
    "repetition": 1,
    "seed": None,
    "tool": True,
    "warm_up": False,
    "state": "completed",
    "command": ["x"],
    "environment": {},
    "started_at": "2026-11-29T10:15:00+00:00",
    "ended_at": None,
    "exit_code": 0,
    "duration_s": 1.5,
    "cpu_s": None,
    "max_rss_bytes": None,
    "verdict": "pass",
    "metrics": {},
    "receipts": [],
    "points_missing": [],
    "finite": None,
    "sha256": {},
    "reason": "",
}


@pytest.fixture
def investigation(tmp_path: Path) -> Investigation:
    return declared(tmp_path / "root", tmp_path).investigation


def begin(investigation: Investigation, directory_name: str, **changed: Any) -> Path:
    directory = investigation.root / "runs" / directory_name
    directory.mkdir()
    write_run(investigation.root, directory, {**RECORD, **changed})
    return directory


class TestRuns:
    def test_runs_come_in_the_order_of_the_schedule_with_their_attempts(self, investigation: Investigation) -> None:
        second = {"number": 2, "name": "002-candidate-1"}
        for attempt in (10, 2, 1):
            name = "002-candidate-1" + ("" if attempt == 1 else f"-attempt{attempt}")
            begin(investigation, name, **second, attempt=attempt)
        begin(investigation, "001-baseline-1")
        assert [(run.number, run.attempt) for run in investigation.runs()] == [(1, 1), (2, 1), (2, 2), (2, 10)]
        assert [(run.number, run.attempt) for run in investigation.latest()] == [(1, 1), (2, 10)]

    def test_only_what_ran_its_course_after_the_warm_up_counts(self, investigation: Investigation) -> None:
        def counts(**changed: Any) -> bool:
            return Run(investigation.root, {**RECORD, **changed}).counts

        assert counts()
        assert counts(state="failed")
        assert not counts(state="interrupted")
        assert not counts(warm_up=True)

    def test_a_run_that_was_copied_is_seen(self, investigation: Investigation) -> None:
        directory = begin(investigation, "001-baseline-1")
        (directory.parent / "003-baseline-2").mkdir()
        (directory.parent / "003-baseline-2" / "run.json").write_bytes((directory / "run.json").read_bytes())
        with pytest.raises(ArtifactError, match="is of the run 001-baseline-1"):
            investigation.runs()

    def test_a_link_is_not_followed(self, investigation: Investigation, tmp_path: Path) -> None:
        directory = begin(investigation, "001-baseline-1")
        (directory / "run.json").rename(tmp_path / "run.json")
        (directory / "run.json").symlink_to(tmp_path / "run.json")
        with pytest.raises(ArtifactError, match="symbolic link"):
            investigation.read_run(directory)

    def test_one_that_is_only_being_made_is_not_there_yet(self, investigation: Investigation) -> None:
        (investigation.root / "runs" / ".001-baseline-1.new").mkdir()
        assert investigation.runs() == []

    def test_there_are_none_before_the_first(self, investigation: Investigation) -> None:
        assert investigation.runs() == []


class TestChecks:
    def test_what_is_written_fits_the_schema_or_is_not_written(self, investigation: Investigation) -> None:
        directory = begin(investigation, "001-baseline-1")
        before = (directory / "run.json").read_bytes()
        with pytest.raises(ArtifactError, match="state: must be one of running, completed"):
            write_run(investigation.root, directory, {**RECORD, "state": "done"})
        assert (directory / "run.json").read_bytes() == before
        metadata = {key: value for key, value in investigation.metadata.items() if key != "question"}
        with pytest.raises(ArtifactError, match="question is missing"):
            write_metadata(investigation.root, metadata)

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ("{", "not JSON"),
            ('{"schema_version": 2}', "schema_version 2; this package reads version 1"),
            ("[]", "must be an object"),
            ('{"schema_version": 1, "schema_version": 1}', "not JSON"),
        ],
    )
    def test_what_is_no_metadata_is_refused(self, tmp_path: Path, content: str, message: str) -> None:
        (tmp_path / "metadata.json").write_text(content)
        with pytest.raises(ArtifactError, match=message):
            open_investigation(tmp_path)

    def test_a_directory_without_metadata_is_no_investigation(self, tmp_path: Path) -> None:
        with pytest.raises(ArtifactError, match="is no investigation"):
            open_investigation(tmp_path)

    def test_metadata_comes_back_as_it_was_written(self, investigation: Investigation) -> None:
        assert open_investigation(investigation.root).metadata == investigation.metadata
        text = (investigation.root / "metadata.json").read_text()
        assert json.loads(text) == investigation.metadata


class TestDigests:
    def test_every_file_below_has_one_and_a_change_shows(self, tmp_path: Path) -> None:
        (tmp_path / "a").mkdir()
        (tmp_path / "a" / "b").write_text("1")
        (tmp_path / "run.json").write_text("left out")
        (tmp_path / "link").symlink_to(tmp_path / "a" / "b")
        before = sha256_below(tmp_path, without=("run.json",))
        assert list(before) == ["a/b"]
        (tmp_path / "a" / "b").write_text("2")
        assert sha256_below(tmp_path, without=("run.json",)) != before
