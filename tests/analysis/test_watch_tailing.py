"""A file that grows is read on from where the last look ended, whatever happens to it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from aorta_collectors.analysis.tailing import Tail
from aorta_collectors.evidence.directory import Anchor

MOST = 1 << 20
LINES = st.lists(st.binary(max_size=12).map(lambda line: line.replace(b"\n", b" ")), max_size=12)


def read(tail: Tail, directory: Path, most: int = MOST) -> list[bytes]:
    with Anchor(directory).open(directory) as artifacts:
        return tail.lines(artifacts, most)


@given(
    LINES, st.binary(max_size=5).map(lambda rest: rest.replace(b"\n", b"")), st.lists(st.integers(0, 200), max_size=8)
)
def test_any_split_of_writes_gives_the_same_lines(lines: list[bytes], rest: bytes, cuts: list[int]) -> None:
    content = b"".join(line + b"\n" for line in lines) + rest
    places = sorted({min(cut, len(content)) for cut in cuts} | {len(content)})
    with tempfile.TemporaryDirectory() as name:
        tail, found, before = Tail("a.jsonl"), [], 0
        for place in places:
            with (Path(name) / "a.jsonl").open("ab") as stream:
                stream.write(content[before:place])
            before = place
            found += read(tail, Path(name))
        assert found == lines
        assert read(tail, Path(name)) == []
        assert tail.passed_over_bytes == 0


@given(st.lists(st.binary(max_size=9).map(lambda line: line.replace(b"\n", b" ")), min_size=1, max_size=12), st.data())
def test_of_too_much_the_last_whole_lines_are_read(lines: list[bytes], data: st.DataObject) -> None:
    content = b"".join(line + b"\n" for line in lines)
    most = data.draw(st.integers(1, len(content)))
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "a.jsonl").write_bytes(content)
        tail = Tail("a.jsonl")
        found = read(tail, Path(name), most)
        expected = lines[:]
        while sum(len(line) + 1 for line in expected) > most:
            del expected[0]
        assert found == expected
        assert tail.passed_over_bytes == len(content) - most
        with (Path(name) / "a.jsonl").open("ab") as stream:
            stream.write(b"next\n")
        assert read(tail, Path(name), 5) == [b"next"]


def test_a_file_comes_late_is_replaced_cut_and_removed(tmp_path: Path) -> None:
    file, tail = tmp_path / "a.jsonl", Tail("a.jsonl")
    assert read(tail, tmp_path) == []
    file.write_bytes(b"1\n2\nha")
    assert read(tail, tmp_path) == [b"1", b"2"]
    os.truncate(file, 4)  # the writer takes back what did not fit on the disk
    assert read(tail, tmp_path) == []
    with file.open("ab") as stream:
        stream.write(b"3\n")
    assert read(tail, tmp_path) == [b"3"]
    other = tmp_path / "b"
    other.write_bytes(b"new\n")
    other.replace(file)
    assert read(tail, tmp_path) == [b"new"]
    file.unlink()
    assert read(tail, tmp_path) == []


def test_links_and_special_files_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(b"secret\n")
    (tmp_path / "a.jsonl").symlink_to(tmp_path / "elsewhere")
    os.mkfifo(tmp_path / "b.jsonl")
    assert read(Tail("a.jsonl"), tmp_path) == []
    assert read(Tail("b.jsonl"), tmp_path) == []


def test_a_line_without_an_end_does_not_fill_memory(tmp_path: Path) -> None:
    file, tail = tmp_path / "a.jsonl", Tail("a.jsonl")
    file.write_bytes(b"x" * (3 << 20))
    assert [len(line) for line in read(tail, tmp_path, 1 << 30)] == [3 << 20]
    with file.open("ab") as stream:
        stream.write(b"x\nnext\n")
    assert read(tail, tmp_path, 1 << 30) == [b"x", b"next"]
