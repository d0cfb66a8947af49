"""The journal: every line follows the one before it, and holds what the records say."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aorta_collectors.errors import ArtifactError
from aorta_collectors.investigate.design import Design
from aorta_collectors.investigate.files import open_investigation, write_metadata, write_run
from aorta_collectors.investigate.journal import JOURNAL, note, parts_of, read_journal
from aorta_collectors.investigate.report.reading import readable_runs
from aorta_collectors.investigate.verify.journal import journal_faults
from tests.investigate.made import Made, layers

#: Fields of run.json that say how a run went, each with a value that it does not have.
SAID: dict[str, Any] = {
    "exit_code": 1,
    "duration_s": 0.5,
    "cpu_s": 0.5,
    "max_rss_bytes": 1,
    "verdict": "fail",
    "finite": False,
    "metrics": {"loss": 0.0},
    "points_missing": ["after_forward"],
    "reason": "because",
    "state": "failed",
    "started_at": "2026-11-29T10:00:09+00:00",
    "ended_at": "2026-11-29T10:00:16+00:00",
    "command": ["true"],
    "environment": {"A": "1"},
    "sha256": {},
    "receipts": [],
}


@pytest.fixture
def made(tmp_path: Path) -> Made:
    found = Made(tmp_path, design=Design.of("values", observer_effect=False))
    found.all({"baseline": layers(1), "candidate": layers(2)})
    return found


def faults(root: Path) -> list[str]:
    """Places below the root, each with what is wrong."""
    investigation = open_investigation(root)
    found = journal_faults(investigation, readable_runs(investigation)[0])
    return [f"{fault.place.removeprefix(f'{root}/')}: {fault.what}" for fault in found]


def edited(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content, indent=2) + "\n")


class TestChain:
    def test_it_tells_of_what_was_declared_and_of_every_run(self, made: Made) -> None:
        lines = read_journal(made.root)
        assert [(line.what, line.of) for line in lines] == [
            ("declared", "metadata.json"),
            ("started", "metadata.json"),
            ("ended", "runs/001-baseline-1/run.json"),
            ("ended", "runs/002-candidate-1/run.json"),
        ]
        assert lines[0].previous is None
        assert [line.previous for line in lines[1:]] == [line.own for line in lines[:-1]]
        assert lines[2].sha256 == hashlib.sha256((made.directory(1) / "run.json").read_bytes()).hexdigest()
        assert faults(made.root) == []

    def test_what_has_not_changed_has_no_second_line_and_a_run_that_runs_has_none(self, made: Made) -> None:
        before = (made.root / JOURNAL).read_bytes()
        write_metadata(made.root, made.investigation.metadata)
        directory = made.directory(1).with_name("001-baseline-1-attempt2")
        directory.mkdir()
        record = json.loads((made.directory(1) / "run.json").read_text())
        write_run(made.root, directory, {**record, "attempt": 2, "state": "running"})
        assert (made.root / JOURNAL).read_bytes() == before

    @given(st.dictionaries(st.text(), st.one_of(st.integers(), st.text(), st.booleans()), max_size=4), st.randoms())
    def test_the_order_of_keys_does_not_matter_and_each_value_does(self, own: dict[str, Any], draw: Any) -> None:
        metadata = {"started_at": "now", "environment": own, "question": "Why?", "changes": [own]}
        names = draw.sample(list(metadata), len(metadata))
        assert parts_of({name: metadata[name] for name in names}) == parts_of(metadata)
        other = parts_of({**metadata, "environment": {**own, "one more": 1}})
        assert {what for what, digest in parts_of(metadata).items() if other[what] != digest} == {"started"}

    def test_what_is_no_line_is_told_and_does_not_keep_others_from_being_added(self, made: Made) -> None:
        with (made.root / JOURNAL).open("a") as stream:
            stream.write('{"at": "now"')
        with pytest.raises(ArtifactError, match="line 5 is not as this package writes it"):
            read_journal(made.root)
        note(made.root, "ended", "runs/x/run.json", "0" * 64)
        *_, half, last = (made.root / JOURNAL).read_bytes().splitlines()
        assert json.loads(last)["previous"] == hashlib.sha256(half).hexdigest()
        assert faults(made.root)[0].startswith(f"{JOURNAL}: it cannot be read")


class TestFaults:
    @pytest.mark.parametrize("name", SAID)
    def test_whatever_is_changed_in_a_record_is_seen(self, made: Made, name: str) -> None:
        path = made.directory(2) / "run.json"
        edited(path, lambda content: content.update({name: SAID[name]}))
        (fault,) = faults(made.root)
        assert fault.startswith("runs/002-candidate-1/run.json: its sha256 is ")

    @pytest.mark.parametrize(
        ("change", "part"),
        [
            ({"question": "Another?"}, "what was declared"),
            ({"points": []}, "what was declared"),
            ({"environment": None}, "what was recorded at the first start"),
            ({"files": {}}, "what was recorded at the first start"),
            ({"changes": [{"at": "x", "before_run": 1, "what": ["y"]}]}, "what --allow-changes recorded"),
        ],
    )
    def test_whatever_is_changed_in_metadata_is_seen(self, made: Made, change: dict[str, Any], part: str) -> None:
        edited(made.root / "metadata.json", lambda content: content.update(change))
        assert faults(made.root) == [f"metadata.json: {part} is not what the journal has"]

    def test_changes_that_were_recorded_and_taken_out_again(self, made: Made) -> None:
        change = {"at": "x", "before_run": 1, "what": ["y"]}
        write_metadata(made.root, {**made.investigation.metadata, "changes": [change]})
        assert faults(made.root) == []
        edited(made.root / "metadata.json", lambda content: content.pop("changes"))
        assert faults(made.root) == ["metadata.json: what --allow-changes recorded is not what the journal has"]

    def test_what_was_declared_anew_afterwards(self, made: Made) -> None:
        write_metadata(made.root, {**made.investigation.metadata, "criterion": "something easier"})
        assert faults(made.root) == ["metadata.json: what was declared was changed afterwards, as the journal has it"]

    @pytest.mark.parametrize("number", range(1, 5))
    def test_a_line_that_was_changed_breaks_the_chain_after_it_or_holds_something_else(
        self, made: Made, number: int
    ) -> None:
        lines = (made.root / JOURNAL).read_bytes().splitlines()
        changed = json.loads(lines[number - 1])
        changed["sha256"] = "0" * 64
        lines[number - 1] = json.dumps(changed).encode()
        (made.root / JOURNAL).write_bytes(b"\n".join(lines) + b"\n")
        found = faults(made.root)
        assert len([fault for fault in found if "does not follow the line before it" in fault]) == (number < 4)
        assert [fault for fault in found if "journal has" in fault or "its sha256 is" in fault]

    def test_a_line_that_was_taken_out(self, made: Made) -> None:
        lines = (made.root / JOURNAL).read_bytes().splitlines(keepends=True)
        (made.root / JOURNAL).write_bytes(b"".join(lines[:-1]))
        assert faults(made.root) == ["runs/002-candidate-1/run.json: the journal does not have how this run ended"]
        (made.root / JOURNAL).write_bytes(b"".join(lines[:2] + lines[3:]))
        assert len(faults(made.root)) == 2

    def test_no_journal_at_all_and_a_link_in_its_place(self, made: Made, tmp_path: Path) -> None:
        (made.root / JOURNAL).rename(tmp_path / "elsewhere")
        assert faults(made.root) == [f"{JOURNAL}: it is not there, so that nothing holds what the records say"]
        (made.root / JOURNAL).symlink_to(tmp_path / "elsewhere")
        assert len(faults(made.root)) == 1

    def test_a_run_that_ended_twice_and_one_that_is_gone(self, made: Made) -> None:
        path = made.directory(1) / "run.json"
        record = {**json.loads(path.read_text()), "duration_s": 1.0}
        write_run(made.root, made.directory(1), record)
        (made.directory(2) / "run.json").unlink()
        assert faults(made.root) == [
            "runs/001-baseline-1/run.json: the journal has 2 ends of this run, which has one",
            "runs/002-candidate-1/run.json: the journal has how this run ended, and it is not there",
        ]

    def test_one_that_was_killed_between_its_line_and_its_record_is_closed_as_interrupted(self, made: Made) -> None:
        path = made.directory(1) / "run.json"
        write_run(made.root, made.directory(1), {**json.loads(path.read_text()), "state": "interrupted"})
        assert faults(made.root) == []
