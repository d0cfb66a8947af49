"""The two files of a process stay readable whatever happens to the disk, and writing never raises."""

from __future__ import annotations

import gc
import json
import os
import random
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    file.append([json.dumps({"number": number, "text": letter * size}) for letter, size in (("x", 60), ("y", 20))])
    summary.beat(number)
summary.write({"steps_seen": 7, "text": "x" * 5000})
first = summary.error
summary.beat(55)
file.close()
summary.close()
print(json.dumps([file.written, file.error, first]))
"""

_DAEMON = """
import json, os, sys
from pathlib import Path
from aorta_collectors.observe.files import RecordFile, SummaryFile
file, summary = RecordFile(Path("layers.jsonl")), SummaryFile(Path("summary.json"), "steps_seen")

def step(number):
    file.append([json.dumps({"number": number})])
    summary.beat(number)

step(1)
summary.write({"steps_seen": 1})
os.closerange(3, 2000)
if "removed" in sys.argv:
    os.rename("summary.json", "moved.json")
    os.rename("layers.jsonl", "moved.jsonl")
    for name in ("summary.json", "layers.jsonl"):
        Path(name).write_text("mine")
mine = [open(f"mine_{index}", "w") for index in range(20)]
step(2)
if "removed" in sys.argv:
    assert "closed by the program" in file.error, file.error
    assert "closed by the program" in summary.error, summary.error
else:
    summary.write({"steps_seen": 2})
    step(3)
    os.closerange(30, 2000)
    summary.beat(6)
    assert (file.error, summary.error) == (None, None)
file.close()
summary.close()
for stream in mine:
    stream.write("mine")
    stream.close()
"""


def content(steps: int = 0, **more: Any) -> dict[str, Any]:
    return {"status": "running", "steps_seen": steps, "note": "Zahl \u00fc \U0001f600", **more}


class Interrupted(BaseException):
    """What a signal handler of the program raises, as Ctrl-C does."""


@pytest.fixture
def interrupted_soon() -> Iterator[Callable[[Callable[[], None]], bool]]:
    """Call something, and raise Interrupted in it some time soon; returns whether that came in time."""

    def interrupt(number: int, frame: Any) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    gc.disable()  # an exception in one of its callbacks would get lost
    delays = random.Random(0)

    def call(function: Callable[[], None]) -> bool:
        try:
            try:
                signal.setitimer(signal.ITIMER_REAL, 10 ** delays.uniform(-5, -2.5))
                function()
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        except Interrupted:
            return True
        return False

    yield call
    gc.enable()
    signal.signal(signal.SIGALRM, before)


class TestRecordFile:
    """Whole lines, or none."""

    def test_a_block_that_is_interrupted_is_there_as_a_whole_or_not_at_all(
        self, tmp_path: Path, interrupted_soon: Callable[[Callable[[], None]], bool]
    ) -> None:
        file = RecordFile(tmp_path / "layers.jsonl")
        count = 0
        for number in range(300):
            lines = [json.dumps([number, part, "x" * 2000]) for part in range(number % 50)]
            count += interrupted_soon(lambda lines=lines: file.append(lines))  # type: ignore[misc]
            if number % 50 == 0:
                assert len(records(file.path)) == file.written
        file.close()
        found = [(line[0], line[1]) for line in map(list, records(file.path))]
        assert found == sorted(found)
        assert len(found) == file.written
        assert 0 < count < 300

    def test_each_line_is_whole_and_in_the_order_given(self, tmp_path: Path) -> None:
        file = RecordFile(tmp_path / "layers.jsonl")
        file.append(['{"a": 1}', '{"a": 2}'])
        file.append([])
        file.append(['{"a": null}'])
        file.close()
        file.close()
        assert file.path.read_bytes() == b'{"a": 1}\n{"a": 2}\n{"a": null}\n'
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
        file.append(['{"a": 1}'])
        assert file.error == "/dev/full: No space left on device"
        file.append(['{"a": 2}'])
        assert file.written == 0
        file.close()

    def test_a_directory_that_is_not_there_is_an_error_and_no_exception(self, tmp_path: Path) -> None:
        file = RecordFile(tmp_path / "gone" / "layers.jsonl")
        file.append(['{"a": 1}'])
        file.close()
        assert file.written == 0
        assert file.error is not None
        assert "No such file" in file.error

    def test_a_directory_removed_while_writing_raises_nothing(self, tmp_path: Path) -> None:
        directory = tmp_path / "out"
        directory.mkdir()
        file = RecordFile(directory / "layers.jsonl")
        file.append(['{"a": 1}'])
        shutil.rmtree(directory)
        file.append(['{"a": 2}'])
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

    def test_where_it_cannot_be_replaced_its_short_values_still_move(self, tmp_path: Path) -> None:
        directory = tmp_path / "out"
        directory.mkdir()
        widths = {"status": 10, "ended_by": 20, "write_error": 60, "not_there": 5}
        file = SummaryFile(directory / "summary.json", "steps_seen", widths=widths)
        start = content(1, ended_by=None, write_error=None, first_bad={"status": "running"})
        file.write(start)
        shutil.copy(directory / "summary.json", tmp_path / "before.json")
        size = file.path.stat().st_size
        (directory / f".summary.json.{os.getpid()}.tmp").mkdir()  # stands where the new one is to be written
        file.write({**start, "status": "complete", "ended_by": "\u00fcber " * 9, "steps_seen": 7, "first_bad": None})
        assert file.error is not None
        found = json.loads(file.path.read_text())
        assert found["ended_by"][:1] == "\u00fc"
        assert "..." in found["ended_by"]
        assert found["write_error"].endswith("Is a directory")
        short = {key: found[key] for key in ("ended_by", "write_error")}
        assert found == {**start, **short, "status": "complete", "steps_seen": 7}
        file.write({**start, "ended_by": None, "write_error": "another one"})
        assert json.loads(file.path.read_text()) == {**start, "write_error": "another one"}
        assert file.path.stat().st_size == size
        (directory / f".summary.json.{os.getpid()}.tmp").rmdir()
        file.write(start)
        assert file.path.read_bytes() == (tmp_path / "before.json").read_bytes()
        file.close()

    @given(st.text(max_size=80) | st.none(), st.text(max_size=80) | st.none())
    def test_any_short_value_takes_the_place_of_any_other(self, first: str | None, second: str | None) -> None:
        with tempfile.TemporaryDirectory() as name:
            path = Path(name) / "summary.json"
            file = SummaryFile(path, "steps_seen", widths={"ended_by": 30})
            file.write({"steps_seen": 1, "ended_by": first, "text": first})
            (path.parent / f".summary.json.{os.getpid()}.tmp").mkdir()
            file.write({"steps_seen": 2, "ended_by": second, "text": second})
            file.close()
            found = json.loads(path.read_text())
        assert (found["steps_seen"], found["text"]) == (2, first)
        assert found["ended_by"] == second or "..." in found["ended_by"]

    def test_an_interrupted_writing_leaves_a_whole_file_and_nothing_beside_it(
        self, tmp_path: Path, interrupted_soon: Callable[[Callable[[], None]], bool]
    ) -> None:
        file = SummaryFile(tmp_path / "summary.json", "steps_seen")
        file.write(content(0))
        count = 0
        for number in range(1, 200):
            now = content(number, padding="x" * (number * 997 % 90_000))
            count += interrupted_soon(lambda now=now: file.write(now))  # type: ignore[misc]
            assert json.loads(file.path.read_text())["steps_seen"] <= number
        file.write(content(200))
        file.beat(201)
        file.close()
        assert json.loads(file.path.read_text()) == content(201)
        assert [path.name for path in tmp_path.iterdir()] == ["summary.json"]
        assert 0 < count < 199

    def test_one_that_a_signal_handler_of_the_program_writes_meanwhile_is_the_newer_one(self, tmp_path: Path) -> None:
        """Its handler may call a model, such as to evaluate it."""
        file = SummaryFile(tmp_path / "summary.json", "steps_seen")
        came: list[int] = []

        def handle(number: int, frame: Any) -> None:
            while frame is not None and frame.f_code is not SummaryFile._write_beside.__code__:
                frame = frame.f_back
            if frame is not None:
                came.append(number)
                file.write(content(2, by="the handler", padding="x" * 100))

        before = signal.signal(signal.SIGALRM, handle)
        delays = random.Random(0)
        try:
            for index in range(300):
                came.clear()
                signal.setitimer(signal.ITIMER_REAL, 10 ** delays.uniform(-5, -3.3))
                file.write(content(1, by="the program", padding="x" * (index * 997 % 90_000)))
                signal.setitimer(signal.ITIMER_REAL, 0)
                assert json.loads(file.path.read_text())["by"] == ("the handler" if came else "the program")
                assert file.error is None
        finally:
            signal.signal(signal.SIGALRM, before)
        file.beat(3)
        file.close()
        assert json.loads(file.path.read_text())["steps_seen"] == 3
        assert [path.name for path in tmp_path.iterdir()] == ["summary.json"]

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

    def test_a_directory_that_vanished_raises_nothing_and_its_successor_is_left_alone(self, tmp_path: Path) -> None:
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
        file.path.write_text("of the next trial")
        file.write(content(4))
        file.beat(5)
        assert file.error is not None
        file.close()
        file.close()
        file.beat(6)
        assert [path.read_text() for path in directory.iterdir()] == ["of the next trial"]

    def test_a_directory_that_was_renamed_keeps_its_files(self, tmp_path: Path) -> None:
        (tmp_path / "out").mkdir()
        file = SummaryFile(tmp_path / "out" / "summary.json", "steps_seen")
        file.write(content(1))
        (tmp_path / "out").rename(tmp_path / "elsewhere")
        file.write(content(2))
        file.beat(3)
        file.close()
        assert file.error is None
        assert json.loads((tmp_path / "elsewhere" / "summary.json").read_text())["steps_seen"] == 3
        assert [path.name for path in (tmp_path / "elsewhere").iterdir()] == ["summary.json"]


class TestClosedByTheProgram:
    """Daemons close all descriptors; what they open then gets the numbers that ours had."""

    def test_files_go_on_where_they_were_and_no_file_of_the_program_is_touched(self, tmp_path: Path) -> None:
        (tmp_path / "train.py").write_text(_DAEMON)
        run([PYTHON, "train.py"], tmp_path).ok()
        assert [record["number"] for record in records(tmp_path / "layers.jsonl")] == [1, 2, 3]
        assert json.loads((tmp_path / "summary.json").read_text())["steps_seen"] == 6
        assert {path.read_text() for path in tmp_path.glob("mine_*")} == {"mine"}

    def test_the_number_of_a_closed_stream_is_left_to_what_writes_there(self, tmp_path: Path) -> None:
        stdin = os.dup(0)
        os.close(0)
        try:
            lines, summary = RecordFile(tmp_path / "lines"), SummaryFile(tmp_path / "summary", "steps_seen")
            lines.append(["{}"])
            summary.write(content(1))
            free = os.open(os.devnull, os.O_RDONLY)
            os.close(free)
        finally:
            os.dup2(stdin, 0)
            os.close(stdin)
        assert free == 0
        assert (lines.error, summary.error) == (None, None)
        lines.close()
        summary.close()
        assert (tmp_path / "lines").read_text() == "{}\n"

    def test_a_file_that_is_gone_by_then_is_an_error(self, tmp_path: Path) -> None:
        (tmp_path / "train.py").write_text(_DAEMON)
        run([PYTHON, "train.py", "removed"], tmp_path).ok()
        assert {path.name for path in tmp_path.iterdir()} >= {"mine_0", "summary.json"}
        assert (tmp_path / "summary.json").read_text() == "mine"
        assert {path.read_text() for path in tmp_path.glob("mine_*")} == {"mine"}

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
