"""The two files of a process stay readable whatever happens to the disk, and writing never raises."""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from aorta_collectors.observe.files import RecordFile, SummaryFile
from tests.support import PYTHON, records, run

_FULL_DISK = """
import json, resource, sys
from pathlib import Path
from aorta_collectors.observe.files import RecordFile, SummaryFile
file = RecordFile(Path("layers.jsonl"))
summary = SummaryFile(Path("summary.json"), "steps_seen")
summary.write({"steps_seen": 0, "text": "small"})
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
for number in range(100):
    file.append([{"number": number, "text": "x" * 60}, {"number": number, "text": "y" * 20}])
    summary.beat(number)
summary.write({"steps_seen": 7, "text": "x" * 5000})
first = summary.error
summary.beat(55)
file.close()
summary.close()
print(json.dumps([file.written, file.error, first]))
"""


def content(steps: int = 0, **more: Any) -> dict[str, Any]:
    return {"status": "running", "steps_seen": steps, "note": "Zahl \u00fc \U0001f600", **more}


class TestRecordFile:
    """Whole lines, or none."""

    def test_each_record_is_one_line_in_the_order_given(self, tmp_path: Path) -> None:
        file = RecordFile(tmp_path / "layers.jsonl")
        file.append([{"a": 1}, {"a": 2}])
        file.append([])
        file.append([{"a": None, "text": "two\nlines"}])
        file.close()
        file.close()
        assert records(file.path) == [{"a": 1}, {"a": 2}, {"a": None, "text": "two\nlines"}]
        assert file.written == 3
        assert file.error is None

    def test_what_was_there_before_is_replaced(self, tmp_path: Path) -> None:
        path = tmp_path / "layers.jsonl"
        path.write_text("old\n")
        RecordFile(path).close()
        assert path.read_text() == ""

    def test_on_a_full_disk_the_lines_before_stay_whole_and_so_does_the_summary(self, tmp_path: Path) -> None:
        done = run([PYTHON, "-c", _FULL_DISK], tmp_path).ok()
        written, error, summary_error = json.loads(done.out)
        lines = records(tmp_path / "layers.jsonl")
        assert 0 < len(lines) == written < 200
        assert [line["number"] for line in lines] == [number // 2 for number in range(written)]
        assert error == "layers.jsonl: File too large"
        assert summary_error == "summary.json: File too large"
        assert json.loads((tmp_path / "summary.json").read_text()) == {"steps_seen": 55, "text": "small"}
        assert {path.name for path in tmp_path.iterdir()} == {"layers.jsonl", "summary.json"}

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
    def test_after_an_error_nothing_more_is_written(self) -> None:
        file = RecordFile(Path("/dev/full"))
        file.append([{"a": 1}])
        assert file.error == "/dev/full: No space left on device"
        file.append([{"a": 2}])
        assert file.written == 0
        file.close()

    def test_a_directory_that_is_not_there_is_an_error_and_no_exception(self, tmp_path: Path) -> None:
        file = RecordFile(tmp_path / "gone" / "layers.jsonl")
        file.append([{"a": 1}])
        file.close()
        assert file.written == 0
        assert file.error is not None
        assert "No such file" in file.error

    def test_a_directory_removed_while_writing_raises_nothing(self, tmp_path: Path) -> None:
        directory = tmp_path / "out"
        directory.mkdir()
        file = RecordFile(directory / "layers.jsonl")
        file.append([{"a": 1}])
        shutil.rmtree(directory)
        file.append([{"a": 2}])
        file.close()


class TestSummaryFile:
    """Always a whole JSON object, whose step count moves in place."""

    def test_the_step_count_moves_in_place_and_nothing_else_does(self, tmp_path: Path) -> None:
        file = SummaryFile(tmp_path / "summary.json", "steps_seen")
        file.write(content(3, first_bad={"step": 4}, other={"steps_seenx": 1}))
        inode, size = file.path.stat().st_ino, file.path.stat().st_size
        for step in (4, 10, 999_999_999, 10**19):
            file.beat(step)
            assert json.loads(file.path.read_text()) == content(step, first_bad={"step": 4}, other={"steps_seenx": 1})
            assert (file.path.stat().st_ino, file.path.stat().st_size) == (inode, size)
        file.close()

    def test_a_text_that_looks_like_the_step_count_is_not_taken_for_it(self, tmp_path: Path) -> None:
        file = SummaryFile(tmp_path / "summary.json", "steps_seen")
        tricky = {"command": '"steps_seen": 12', "steps_seen": 1}
        file.write(tricky)
        file.beat(2)
        file.close()
        assert json.loads(file.path.read_text()) == {**tricky, "steps_seen": 2}

    def test_a_reader_at_any_moment_finds_a_whole_object(self, tmp_path: Path) -> None:
        file = SummaryFile(tmp_path / "summary.json", "steps_seen")
        file.write(content(0))
        stop = threading.Event()
        faults: list[str] = []
        reads: list[int] = []

        def read() -> None:
            while not stop.is_set():
                text = file.path.read_text()
                try:
                    reads.append(json.loads(text)["steps_seen"])
                except ValueError as error:
                    faults.append(f"{error}: {text!r}")

        reader = threading.Thread(target=read)
        reader.start()
        for step in range(1, 400):
            file.beat(step)
            if step % 5 == 0:
                file.write(content(step, padding="x" * (step * 37 % 9000)))
        stop.set()
        reader.join()
        file.close()
        assert not faults
        assert reads == sorted(reads)
        assert [path.name for path in tmp_path.iterdir()] == ["summary.json"]

    def test_a_directory_that_vanished_raises_nothing(self, tmp_path: Path) -> None:
        directory = tmp_path / "out"
        directory.mkdir()
        file = SummaryFile(directory / "summary.json", "steps_seen")
        file.beat(1)
        file.write(content(1))
        shutil.rmtree(directory)
        file.beat(2)
        file.write(content(3))
        assert file.error is not None
        assert "No such file" in file.error
        directory.mkdir()
        file.write(content(4))
        file.beat(5)
        assert file.error is None
        assert json.loads(file.path.read_text())["steps_seen"] == 5
        file.close()
        file.close()
        file.beat(6)

    def test_a_failed_write_keeps_the_summary_before_it(self, tmp_path: Path) -> None:
        directory = tmp_path / "out"
        file = SummaryFile(directory / "summary.json", "steps_seen")
        file.write(content(1))
        assert file.error is not None
        directory.mkdir()
        (directory / "summary.json").mkdir()
        file.write(content(2))
        assert file.error is not None
        assert [path.name for path in directory.iterdir()] == ["summary.json"]
        file.close()
