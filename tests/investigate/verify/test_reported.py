"""Whether a report is the one that the artifacts give: each edit of it, and of what it was made of, has its line."""

from __future__ import annotations

import datetime
import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from aorta_collectors.cli.printed import printed
from aorta_collectors.investigate.verify.whole import verify_investigation
from tests.investigate.made import Made, layers
from tests.investigate.test_report import report_of
from tests.investigate.verify.support import edited, faults, places


class TestReport:
    def test_there_is_none(self, tmp_path: Path) -> None:
        made = Made(tmp_path)
        made.all({"baseline": layers(1), "candidate": layers(1)})
        assert [fault.what for fault in faults(made.root)] == ["there is no report"]

    def test_an_edited_evidence_file_and_the_line_that_the_artifacts_give(self, made: Made) -> None:
        path = next((made.root / "evidence").glob("01-*"))
        path.write_text(path.read_text().replace("1 mismatched", "0 mismatched"))
        found = [fault.what for fault in faults(made.root) if fault.place == str(path)]
        assert found[0] == "it was changed since it was written"
        assert len(found) == 2
        assert found[1].startswith("line 7 is not what the artifacts give: it has")
        assert "0 mismatched" in found[1].partition("they give")[0]
        assert "1 mismatched" in found[1].partition("they give")[2]

    def test_an_edit_that_fits_the_index_is_found_by_making_it_again(self, made: Made) -> None:
        path = made.root / "REPORT.md"
        text = path.read_text().replace("Seen in 2 of 2 pairs", "Seen in 1 of 2 pairs")
        path.write_text(text)
        digest = hashlib.sha256(text.encode()).hexdigest()
        index = made.root / "evidence" / "index.json"
        edited(index, lambda content: content["written"].update({"REPORT.md": digest}))
        (fault,) = faults(made.root)
        assert fault.place == str(path)
        assert "Seen in 1 of 2 pairs" in fault.what.partition("they give")[0]
        assert "Seen in 2 of 2 pairs" in fault.what.partition("they give")[2]

    def test_a_better_duration_is_not_what_the_sweep_says(self, made: Made) -> None:
        edited(made.directory(1) / "run.json", lambda content: content.update(duration_s=1.0))
        found = [fault.what for fault in faults(made.root) if fault.place == f"{made.directory(1)}/run.json"]
        assert found[0] == "its duration_s is not what the files of the run tell, which is 2.0"
        assert "when the run had ended" in found[1]

    @pytest.mark.parametrize("change", [{"exit_code": 0}, {"command": ["tensors", "list"]}])
    def test_what_the_index_says_of_a_view(self, made: Made, change: dict[str, Any]) -> None:
        index = made.root / "evidence" / "index.json"
        edited(index, lambda content: content["evidence"][0].update(change))
        (fault,) = faults(made.root)
        assert fault.place == str(index)
        assert fault.what.startswith("its entry of 01-tensors-compare-001-baseline-1-002-candidate-1.txt is not what")

    def test_an_artifact_that_the_index_no_longer_lists_and_one_that_nothing_stands_on(self, made: Made) -> None:
        index = made.root / "evidence" / "index.json"
        script = made.root.parent / "train.py"
        digest = hashlib.sha256(script.read_bytes()).hexdigest()
        path = next(iter(json.loads(index.read_text())["cited"]))
        edited(index, lambda content: content["cited"].pop(path))
        assert [fault.what for fault in faults(made.root)] == [f"it does not list {path}, which the report stands on"]
        report_of(made)
        edited(index, lambda content: content["cited"].update({str(script): digest}))
        assert [fault.what for fault in faults(made.root)] == [f"it lists {script}, which nothing stands on"]

    @pytest.mark.parametrize("name", ["REPORT.md", "report.html"])
    def test_a_page_that_is_gone_or_edited(self, made: Made, name: str) -> None:
        text = (made.root / name).read_text()
        (made.root / name).write_text(f"{text}more\n")
        assert name in places(made.root)
        (made.root / name).unlink()
        assert places(made.root) == [name]

    def test_a_file_that_no_report_wrote(self, made: Made) -> None:
        (made.root / "evidence" / "99-mine.txt").write_text("better numbers")
        assert places(made.root) == ["evidence/99-mine.txt"]

    def test_it_is_older_than_a_run(self, made: Made) -> None:
        late = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=1)
        edited(made.directory(4) / "run.json", lambda content: content.update(ended_at=late.isoformat()))
        assert any("and the last run ended at" in fault.what for fault in faults(made.root))

    def test_a_person_wrote_more_since(self, made: Made) -> None:
        (made.root / "inference.md").write_text("It is the scale.\n")
        assert places(made.root) == ["REPORT.md"]

    @pytest.mark.parametrize("name", ["moved", "a root with spaces & _more_"])
    def test_a_root_that_was_moved_is_no_fault_and_noted_and_still_looked_at(self, made: Made, name: str) -> None:
        moved = made.root.with_name(name)
        made.root.rename(moved)
        found = verify_investigation(moved, printed, lambda done, total: None)
        assert found.faults == ()
        assert found.note.startswith(f"moved from {made.root}: absolute links of REPORT.md lead there")
        assert printed(["investigate", "verify", str(moved)]).text.splitlines()[0] == f"note: {found.note}"
        report = moved / "REPORT.md"
        report.write_text(report.read_text().replace("Seen in 2 of 2 pairs", "Seen in 1 of 2 pairs"))
        told = [fault.what for fault in faults(moved)]
        assert told[0] == "it was changed since it was written"
        assert "Seen in 1 of 2 pairs" in told[1].partition("they give")[0]

    def test_of_a_copy_the_copy_is_looked_at_and_not_the_original(self, made: Made) -> None:
        copy = made.root.with_name("copy")
        shutil.copytree(made.root, copy)
        for root in (made.root, copy):
            name = next((root / "evidence").glob("01-*")).name
            path = root / "evidence" / name
            before = path.read_text()
            path.write_text(f"{before}more\n")
            other = copy if root is made.root else made.root
            assert faults(other) == []
            assert {fault.place for fault in faults(root)} == {str(path)}
            path.write_text(before)
        (lines,) = (copy / "runs" / made.directory(1).name).rglob("tensors_rank0.jsonl")
        lines.write_text(lines.read_text().replace('"mean": 2.0', '"mean": 2.1'))
        assert f"{lines}" in [fault.place for fault in faults(copy)]
        assert faults(made.root) == []

    def test_what_the_report_cites_below_the_root_is_listed_relative_to_it(self, made: Made) -> None:
        index = made.root / "evidence" / "index.json"
        cited = json.loads(index.read_text())["cited"]
        assert not any(name.startswith("/") for name in cited)
        edited(index, lambda content: content["cited"].update({"../elsewhere": "x"}))
        assert "a path that the report cites leads out of the investigation" in [f.what for f in faults(made.root)]
