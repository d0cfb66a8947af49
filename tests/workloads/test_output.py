"""The files of a command's output: safe to make where programs could write, and read from their end."""

from __future__ import annotations

from pathlib import Path

import pytest

from aorta_collectors.errors import ArtifactError
from aorta_collectors.evidence.directory import Anchor
from aorta_collectors.workloads.output import Output


def output(directory: Path) -> Output:
    return Output(Anchor(directory), directory / "script" / "trial_d0_m0_t0")


def test_a_link_in_a_files_place_is_replaced_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "script").mkdir()
    outside = tmp_path / "precious"
    outside.write_text("kept")
    place = tmp_path / "script" / "trial_d0_m0_t0.subprocess.stderr.log"
    place.symlink_to(outside)
    made = output(tmp_path)
    made.err.write(b"said\n")
    made.close()
    assert (outside.read_text(), place.read_text(), place.is_symlink()) == ("kept", "said\n", False)


def test_a_linked_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "script").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ArtifactError, match="symbolic link"):
        output(tmp_path)
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize(
    ("written", "tail"),
    [
        (b"", []),
        (b"one\ntwo\n", ["one", "two"]),
        (b"\xff\n", ["\ufffd"]),
        (b"".join(b"%d\n" % number for number in range(5000)), [str(number) for number in range(4980, 5000)]),
        (b"x" * 9000 + b"\nlast\n", ["last"]),
        (b"y" * 9000, ["y" * 4000]),
    ],
)
def test_the_tail_is_whole_lines_as_far_as_there_are_some(tmp_path: Path, written: bytes, tail: list[str]) -> None:
    (tmp_path / "script").mkdir()
    made = output(tmp_path)
    made.err.write(written)
    made.err.flush()
    assert made.tail() == tail
    made.close()
