"""Reading below a directory that the measured program could write to."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from aorta_collectors.errors import ArtifactError
from aorta_collectors.evidence.directory import Anchor, ArtifactDirectory, DirectoryMissing, Kind


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """anchor/a/b with two files, and a secret outside of it."""
    inner = tmp_path / "anchor" / "a" / "b"
    inner.mkdir(parents=True)
    (inner / "one.txt").write_bytes(b"first\nsecond\nthird")
    (inner / "empty.txt").write_bytes(b"")
    outside = tmp_path / "outside" / "b"
    outside.mkdir(parents=True)
    (outside / "one.txt").write_bytes(b"secret")
    return tmp_path / "anchor"


def identity(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_dev, status.st_ino


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


class TestAnchor:
    def test_a_directory_below_and_the_anchor_itself_can_be_opened(self, tree: Path) -> None:
        with Anchor(tree, identity(tree)).open(tree / "a" / "b") as found:
            assert isinstance(found, ArtifactDirectory)
            assert found.path == tree / "a" / "b"
            assert found.read("one.txt").startswith(b"first")
        with Anchor(tree).open(tree) as found:
            assert dict(found.sizes()) == {}

    @pytest.mark.parametrize("component", ["a", "b"])
    def test_a_component_that_is_a_link_is_refused(self, tree: Path, component: str) -> None:
        link = tree / "a" if component == "a" else tree / "a" / "b"
        link.rename(tree.parent / "moved")
        link.symlink_to(tree.parent / "outside" if component == "a" else tree.parent / "outside" / "b")
        with (
            pytest.raises(ArtifactError, match=f"^{component} is a symbolic link, which is not followed$"),
            Anchor(tree).open(tree / "a" / "b"),
        ):
            pass

    def test_a_link_that_stays_inside_is_refused_as_well(self, tree: Path) -> None:
        (tree / "inside").symlink_to("a")
        with pytest.raises(ArtifactError, match="symbolic link"), Anchor(tree).open(tree / "inside"):
            pass

    def test_the_anchor_itself_may_be_reached_through_the_operators_link(self, tree: Path) -> None:
        link = tree.parent / "results"
        link.symlink_to(tree)
        with Anchor(link, identity(tree)).open(link / "a" / "b") as found:
            assert "one.txt" in found.sizes()

    def test_an_anchor_that_was_replaced_is_refused(self, tree: Path) -> None:
        before = identity(tree)
        tree.rename(tree.parent / "moved")
        (tree / "a" / "b").mkdir(parents=True)
        with (
            pytest.raises(ArtifactError, match="no longer the directory that it was when the trial began"),
            Anchor(tree, before).open(tree / "a"),
        ):
            pass

    @pytest.mark.parametrize("directory", ["..", "a/../../outside", "a/.."])
    def test_going_up_is_refused(self, tree: Path, directory: str) -> None:
        with pytest.raises(ArtifactError, match="leaves"), Anchor(tree).open(tree / directory):
            pass

    def test_a_directory_elsewhere_is_refused(self, tree: Path) -> None:
        with pytest.raises(ArtifactError, match="does not lie below"), Anchor(tree).open(tree.parent / "outside"):
            pass

    def test_a_missing_component_is_told_from_an_unreadable_one(self, tree: Path) -> None:
        with pytest.raises(DirectoryMissing), Anchor(tree).open(tree / "a" / "gone" / "deeper"):
            pass
        with pytest.raises(DirectoryMissing), Anchor(tree / "gone").open(tree / "gone"):
            pass
        with pytest.raises(ArtifactError) as caught, Anchor(tree).open(tree / "a" / "b" / "one.txt"):
            pass
        assert not isinstance(caught.value, DirectoryMissing)

    def test_no_descriptor_is_left_open(self, tree: Path) -> None:
        before = open_files()
        for directory in (tree / "a" / "b", tree / "gone", tree / "a" / "b" / "one.txt", tree / ".."):
            try:
                with Anchor(tree).open(directory) as found:
                    found.read("one.txt")
                    list(found.lines("one.txt"))
            except ArtifactError:
                pass
        assert open_files() == before


class TestArtifactDirectory:
    def test_regular_files_alone_are_listed_in_order(self, tree: Path) -> None:
        inner = tree / "a" / "b"
        (inner / "link").symlink_to("one.txt")
        (inner / "folder").mkdir()
        os.mkfifo(inner / "pipe")
        with Anchor(tree).open(inner) as found:
            assert list(found.sizes().items()) == [("empty.txt", 0), ("one.txt", 18)]

    @pytest.mark.parametrize("method", ["read", "lines"])
    def test_what_is_no_regular_file_is_refused_without_hanging(self, tree: Path, method: str) -> None:
        inner = tree / "a" / "b"
        (inner / "link").symlink_to("one.txt")
        (inner / "out").symlink_to(tree.parent / "outside" / "b" / "one.txt")
        (inner / "folder").mkdir()
        os.mkfifo(inner / "pipe")
        with Anchor(tree).open(inner) as found:
            for name in ("link", "out", "folder", "pipe", "gone", ""):
                with pytest.raises(ArtifactError):
                    list(getattr(found, method)(name))

    @pytest.mark.parametrize("name", ["..", ".", "../b/one.txt", "/etc/hostname", "a/b"])
    def test_a_name_that_leads_elsewhere_is_refused(self, tree: Path, name: str) -> None:
        with Anchor(tree).open(tree / "a" / "b") as found, pytest.raises(ArtifactError, match="is not a file name"):
            found.read(name)

    def test_a_file_larger_than_the_limit_is_refused_with_both_sizes(self, tree: Path) -> None:
        with Anchor(tree).open(tree / "a" / "b") as found:
            assert found.read("one.txt", 18) == b"first\nsecond\nthird"
            with pytest.raises(ArtifactError, match="18 bytes, more than the 17 that it can have"):
                found.read("one.txt", 17)
        with open(tree / "a" / "b" / "sparse", "wb") as stream:
            stream.truncate(65 << 20)
        with Anchor(tree).open(tree / "a" / "b") as found, pytest.raises(ArtifactError, match="more than the"):
            found.read("sparse")

    def test_lines_keep_their_ends_and_are_not_held_in_memory(self, tree: Path) -> None:
        with open(tree / "a" / "b" / "long", "wb") as stream:
            stream.write(b"first\n")
            stream.truncate(200 << 20)  # sparse: the rest would be one line of 200 MiB
        with Anchor(tree).open(tree / "a" / "b") as found:
            assert list(found.lines("one.txt")) == [b"first\n", b"second\n", b"third"]
            assert list(found.lines("empty.txt")) == []
            lines = found.lines("long")
            assert next(iter(lines)) == b"first\n"
            lines.close()  # type: ignore[attr-defined]

    def test_a_line_without_end_is_refused_before_it_is_held(self, tree: Path) -> None:
        with open(tree / "a" / "b" / "long", "wb") as stream:
            stream.write(b"first\nsecond")
            stream.truncate(1 << 30)
        with Anchor(tree).open(tree / "a" / "b") as found:
            lines = found.lines("long")
            assert next(iter(lines)) == b"first\n"
            with pytest.raises(ArtifactError, match="long: line 2 is longer than the 1048576 bytes that it can have"):
                next(iter(lines))

    def test_lines_are_whole_wherever_a_block_ends(self, tree: Path) -> None:
        lines = [bytes([97 + index % 26]) * (index * 37 % 5000) + b"\n" for index in range(1500)]
        (tree / "a" / "b" / "lines").write_bytes(b"".join(lines) + b"rest\rof it")
        with Anchor(tree).open(tree / "a" / "b") as found:
            assert list(found.lines("lines")) == [*lines, b"rest\rof it"]

    def test_digests_are_of_what_was_read_and_a_change_in_between_is_noticed(self, tree: Path) -> None:
        path = tree / "a" / "b" / "one.txt"
        with Anchor(tree).open(path.parent) as found:
            content = b"".join(found.lines("one.txt"))
            assert found.read_so_far() == {"one.txt": hashlib.sha256(content).hexdigest()}
            path.write_bytes(content.upper())
            assert found.sha256("one.txt") == hashlib.sha256(content).hexdigest()
            with pytest.raises(ArtifactError, match=r"one\.txt: changed while it was verified"):
                found.read("one.txt")
            assert found.sha256("empty.txt") == hashlib.sha256(b"").hexdigest()

    def test_of_a_file_that_was_read_in_part_the_digest_is_still_that_of_all(self, tree: Path) -> None:
        with Anchor(tree).open(tree / "a" / "b") as found:
            next(iter(found.lines("one.txt")))
            assert found.sha256("one.txt") == hashlib.sha256(b"first\nsecond\nthird").hexdigest()

    def test_entries_are_told_apart_without_following_a_link(self, tree: Path) -> None:
        inner = tree / "a" / "b"
        (inner / "link").symlink_to("/")
        (inner / "folder").mkdir()
        os.mkfifo(inner / "pipe")
        with Anchor(tree).open(inner) as found:
            assert dict(found.entries()) == {
                "one.txt": Kind.FILE,
                "empty.txt": Kind.FILE,
                "link": Kind.LINK,
                "folder": Kind.DIRECTORY,
                "pipe": Kind.OTHER,
            }

    def test_the_directory_that_was_opened_is_read_even_if_its_name_is_taken_away(self, tree: Path) -> None:
        inner = tree / "a" / "b"
        with Anchor(tree).open(inner) as found:
            inner.rename(tree / "moved")
            inner.symlink_to(tree.parent / "outside" / "b")
            assert found.read("one.txt").startswith(b"first")

    def test_writing_replaces_a_file_whole_and_follows_no_link(self, tree: Path) -> None:
        inner, secret = tree / "a" / "b", tree.parent / "outside" / "b" / "one.txt"
        (inner / "receipt.json").symlink_to(secret)
        with Anchor(tree).open(inner) as found:
            found.write("receipt.json", b"ours")
            assert found.read("receipt.json") == b"ours"
            assert sorted(os.listdir(inner)) == ["empty.txt", "one.txt", "receipt.json"]
        assert secret.read_bytes() == b"secret"

    def test_writing_where_a_directory_stands_is_an_artifact_error(self, tree: Path) -> None:
        (tree / "a" / "b" / "receipt.json").mkdir()
        with Anchor(tree).open(tree / "a" / "b") as found, pytest.raises(ArtifactError):
            found.write("receipt.json", b"ours")
        assert sorted(os.listdir(tree / "a" / "b")) == ["empty.txt", "one.txt", "receipt.json"]
