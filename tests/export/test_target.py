"""A target is written whole or not at all, and nothing is lost by mistake."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from aorta_collectors.errors import CollectorsError
from aorta_collectors.export.target import whole


def test_an_error_leaves_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("before")

    def fail(target: Path, files: str | None) -> None:
        with whole(target, True, files) as written:
            (written / "a.x" if files else written).write_text("half")
            raise ZeroDivisionError

    for name, files in (("file", None), ("new", "*.x")):
        with pytest.raises(ZeroDivisionError):
            fail(tmp_path / name, files)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "before"


def test_what_is_there_is_replaced_only_with_force(tmp_path: Path) -> None:
    for attempt in ("first", "second"):
        with whole(tmp_path / "out", attempt == "second", "*.x") as written:
            (written / f"{attempt}.x").write_text(attempt)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["second.x"]
    with pytest.raises(CollectorsError, match="--force replaces it"), whole(tmp_path / "out", False, "*.x"):
        raise AssertionError("not entered")


def test_a_directory_of_something_else_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "work" / "deep").mkdir(parents=True)
    (tmp_path / "work" / "deep" / "thesis.tex").write_text("x")
    with pytest.raises(CollectorsError, match=r"thesis\.tex"), whole(tmp_path / "work", True, "*.x"):
        raise AssertionError("not entered")
    with pytest.raises(CollectorsError, match="is a directory"), whole(tmp_path / "work", True):
        raise AssertionError("not entered")


def test_a_place_that_cannot_be_written_to_is_an_error_of_the_users(tmp_path: Path) -> None:
    with pytest.raises(CollectorsError, match="cannot write"), whole(tmp_path / "none" / "out", False):
        raise AssertionError("not entered")


def test_a_link_is_replaced_and_not_what_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a.x").write_text("kept")
    (tmp_path / "link").symlink_to("real")
    with whole(tmp_path / "link", True, "*.x") as written:
        (written / "b.x").write_text("new")
    assert (tmp_path / "real" / "a.x").read_text() == "kept"
    assert (tmp_path / "link" / "b.x").read_text() == "new"


def test_a_device_or_a_pipe_is_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CollectorsError, match="a device or a pipe"), whole(tmp_path / "pipe", force=True):
        pass
    assert (tmp_path / "pipe").is_fifo()
