"""A file is whole or not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from aorta_collectors.observe.whole_file import write_whole


def test_it_is_written_beside_and_takes_the_place_of_another(tmp_path: Path) -> None:
    path = tmp_path / "values"
    path.write_text("old")
    seen = []

    def write(partial: Path) -> None:
        partial.write_text("new")
        seen.append((partial.parent, path.read_text()))

    write_whole(path, write)
    assert seen == [(tmp_path, "old")]
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_what_fails_leaves_nothing(tmp_path: Path) -> None:
    def fail(partial: Path) -> None:
        partial.write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_whole(tmp_path / "values", fail)
    assert list(tmp_path.iterdir()) == []
