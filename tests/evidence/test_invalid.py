"""The verdict invalid: artifacts of a real run, damaged so that they are unreadable or not to the schema."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from aorta_collectors.api import Verdict
from tests.evidence.damage import Copy, edit, edit_records, verdict


class TestInvalid:
    def test_a_truncated_summary(self, artifacts: Copy) -> None:
        directory = artifacts()
        path = directory / "summary_rank0.json"
        path.write_bytes(path.read_bytes()[:-40])
        assert verdict(directory)[0] is Verdict.INVALID

    @pytest.mark.parametrize("content", [b"", b"[]", b"null", b"\xff", b"{}", b"[" * 100_000])
    def test_a_summary_that_is_none(self, artifacts: Copy, content: bytes) -> None:
        directory = artifacts()
        (directory / "summary_rank0.json").write_bytes(content)
        found, reason = verdict(directory)
        assert found is Verdict.INVALID
        assert reason.startswith("summary_rank0.json: ")

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"steps_seen": "5"}, 'steps_seen: must be an integer >= 0, got "5"'),
            ({"rank": -1}, "rank: must be an integer >= 0, got -1"),
            ({"pid": None}, "pid: must be an integer >= 1, got null"),
            ({"watched_count": ...}, "watched_count is missing"),
            ({"first_bad": {"step": 1}}, "first_bad: layer is missing"),
            ({"schema_version": 2}, "schema_version: "),
            ({"status": "done"}, 'status: must be one of running, ended, complete, got "done"'),
        ],
    )
    def test_a_summary_against_the_schema(self, artifacts: Copy, changes: dict[str, Any], message: str) -> None:
        directory = artifacts()
        edit(directory, **changes)
        found, reason = verdict(directory)
        assert found is Verdict.INVALID
        assert message in reason

    def test_a_torn_last_line(self, artifacts: Copy) -> None:
        directory = artifacts()
        path = directory / "layers_rank0.jsonl"
        path.write_bytes(path.read_bytes()[:-10])
        found, reason = verdict(directory)
        assert found is Verdict.INVALID
        assert reason.endswith("is torn off")

    @pytest.mark.parametrize(
        ("line", "message"),
        [
            (b"{\n", "line 2: "),
            (b"[]\n", "line 2: must be an object, got []"),
            (b"\n", "line 2: "),
            (b"\xff\n", "line 2: "),
            (b'{"step": NaN}\n', "line 2: "),
        ],
    )
    def test_a_line_that_is_no_record(self, artifacts: Copy, line: bytes, message: str) -> None:
        directory = artifacts()
        path = directory / "layers_rank0.jsonl"
        lines = path.read_bytes().splitlines(keepends=True)
        lines[1] = line
        path.write_bytes(b"".join(lines))
        found, reason = verdict(directory)
        assert found is Verdict.INVALID
        assert reason.startswith("layers_rank0.jsonl: ")
        assert message in reason

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda record: record.update(step="1"), "step: must be an integer >= 0"),
            (lambda record: record.pop("bad"), "bad is missing"),
            (lambda record: record.update(direction="up"), "direction: must be one of fwd, bwd"),
            (lambda record: record.update(step=6), "step 6 of 5"),
        ],
    )
    def test_a_record_against_the_schema(
        self, artifacts: Copy, change: Callable[[dict[str, Any]], object], message: str
    ) -> None:
        directory = artifacts()
        edit_records(directory, lambda lines: change(lines[2]))
        found, reason = verdict(directory)
        assert found is Verdict.INVALID
        assert "line 3: " in reason
        assert message in reason

    @pytest.mark.parametrize("change", [lambda record: record.update(step="1"), lambda record: record.pop("host")])
    def test_the_fields_that_matter_are_checked_in_a_long_file_to_its_end(
        self, artifacts: Copy, change: Callable[[dict[str, Any]], object]
    ) -> None:
        directory = artifacts()
        written = json.loads((directory / "summary_rank0.json").read_text())["records_written"]
        edit(directory, records_written=written * 100)
        edit_records(directory, lambda lines: lines.extend([dict(line) for line in lines * 99]))
        assert verdict(directory)[0] is Verdict.CAPTURED
        edit_records(directory, lambda lines: change(lines[-1]))
        assert verdict(directory)[0] is Verdict.INVALID

    @pytest.mark.parametrize("change", [list.pop, lambda lines: lines.append(lines[0]), list.clear])
    def test_a_count_that_differs_from_the_summarys(
        self, artifacts: Copy, change: Callable[[list[Any]], object]
    ) -> None:
        directory = artifacts()
        edit_records(directory, change)
        found, reason = verdict(directory)
        assert found is Verdict.INVALID
        assert "line(s), but the summary says" in reason

    def test_a_missing_or_linked_record_file(self, artifacts: Copy) -> None:
        directory = artifacts()
        path = directory / "layers_rank0.jsonl"
        path.rename(directory.parent / "elsewhere.jsonl")
        assert verdict(directory)[0] is Verdict.INVALID
        path.symlink_to("../elsewhere.jsonl")
        assert verdict(directory)[0] is Verdict.INVALID

    def test_a_directory_that_became_a_link(self, artifacts: Copy) -> None:
        directory = artifacts()
        directory.rename(directory.parent / "moved")
        directory.symlink_to("moved")
        assert verdict(directory) == (
            Verdict.INVALID,
            "layer_numerics is a symbolic link, which is not followed",
        )
