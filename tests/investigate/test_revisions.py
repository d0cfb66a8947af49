"""Work trees and files: which state of the code runs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from aorta_collectors.errors import OptionsError
from aorta_collectors.investigate.revisions import (
    asked_for,
    code_changes,
    described,
    files_of,
    fingerprint,
    revision,
    trees_of,
    work_tree,
)
from tests.support import PYTHON


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    directory = tmp_path / "project"
    directory.mkdir()
    (directory / "train.py").write_text("1")
    git(directory, "init", "-q", "-b", "trunk")
    git(directory, "add", ".")
    git(directory, "commit", "-q", "-m", "first")
    return directory


def git(directory: Path, *words: str) -> str:
    who = ["-c", "user.name=t", "-c", "user.email=t@t", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", *who, *words], cwd=directory, check=True, capture_output=True, text=True)
    return done.stdout.strip()


class TestTrees:
    def test_a_clean_tree_is_its_commit(self, tree: Path) -> None:
        found = revision(tree)
        expected = {"commit": git(tree, "rev-parse", "HEAD"), "branch": "trunk", "changed": False, "diff_sha256": None}
        assert found == {**expected, "changed_files": {}}
        assert described(found) == {"commit": expected["commit"], "branch": "trunk", "changed": False}

    def test_each_change_of_a_tracked_file_is_told_from_another(self, tree: Path) -> None:
        states = []
        for text in ("1", "2", "3"):
            (tree / "train.py").write_text(text)
            states.append(revision(tree)["diff_sha256"])
        assert len(set(states)) == 3
        (tree / "new.txt").write_text("an output of a run is no change")
        assert revision(tree)["diff_sha256"] == states[-1]

    def test_changed_files_are_named_and_source_files_alone_make_a_difference(self, tree: Path) -> None:
        for name in ("notes.md", "model.py", "other.py"):
            (tree / name).write_text("1")
        git(tree, "add", ".")
        git(tree, "commit", "-q", "-m", "second")
        (tree / "other.py").write_text("2")
        recorded = revision(tree)
        assert described(recorded)["changed files"] == "other.py"
        (tree / "notes.md").write_text("2")
        git(tree, "commit", "-q", "-m", "notes", "notes.md")
        git(tree, "checkout", "-q", "-b", "side")
        assert code_changes(tree, recorded) == []
        (tree / "model.py").write_text("2")
        git(
            tree,
            "commit",
            "-q",
            "-a",
            "-m",
            "committed it makes a difference too, and what was changed before does not",
        )
        (line,) = code_changes(tree, recorded)
        assert line.startswith(f"{tree}/model.py: as committed before, sha256:")
        assert code_changes(tree, recorded, [f"{tree}/model.py"]) == []
        (tree / "other.py").write_text("1")
        assert [line.partition(":")[0] for line in code_changes(tree, recorded)] == [
            f"{tree}/model.py",
            f"{tree}/other.py",
        ]

    def test_a_record_without_names_is_held_against_the_diff(self, tree: Path) -> None:
        recorded = {name: value for name, value in revision(tree).items() if name != "changed_files"}
        assert code_changes(tree, recorded) == []
        (tree / "train.py").write_text("2")
        assert code_changes(tree, recorded)[0] == f"{tree} changed: false before, true now"

    def test_a_tree_that_went_away_is_a_change(self, tree: Path) -> None:
        recorded = revision(tree)
        tree.rename(tree.with_name("elsewhere"))
        assert "git could not tell" in code_changes(tree, recorded)[0]

    def test_the_tree_of_an_environment_is_told_as_such_and_of_no_difference(self, tree: Path) -> None:
        recorded = revision(tree, of_environment=True)
        assert (recorded["of"], "changed_files" in recorded) == ("the interpreter's environment", False)
        (tree / "train.py").write_text("2")
        assert code_changes(tree, recorded) == []
        (tree / ".venv" / "bin").mkdir(parents=True)
        (tree / ".venv" / "pyvenv.cfg").touch()
        assert trees_of(tree.parent, [tree / ".venv" / "bin" / "python"]) == []

    def test_a_detached_head_has_no_branch(self, tree: Path) -> None:
        git(tree, "checkout", "-q", "--detach")
        assert revision(tree)["branch"] is None

    def test_a_tree_that_is_gone_is_said_to_be(self, tmp_path: Path) -> None:
        assert "error" in revision(tmp_path / "gone")

    def test_none_is_fine_but_not_where_one_was_asked_for(self, tmp_path: Path, tree: Path) -> None:
        assert work_tree(tmp_path) is None
        assert asked_for([tree / "train.py"]) == [tree]
        with pytest.raises(OptionsError, match="does not lie in a git work tree"):
            asked_for([tmp_path])

    def test_trees_are_those_of_the_directory_and_of_each_file(self, tmp_path: Path, tree: Path) -> None:
        assert tree in trees_of(tmp_path, [tree / "train.py"])
        assert tree not in trees_of(tmp_path, [])

    def test_a_repository_that_a_hook_works_in_is_not_taken_for_it(
        self, tmp_path: Path, tree: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("GIT_DIR", str(tree / ".git"))
        assert work_tree(tmp_path) is None


class TestFiles:
    def test_scripts_modules_and_files_in_words_are_found(self, tmp_path: Path) -> None:
        for name in ("train.py", "data.csv", "conf.yaml", "mod.py"):
            (tmp_path / name).touch()
        words = [PYTHON, "train.py", "--data", "data.csv", "--conf=conf.yaml", "--out=result", "x" * 5000, "a\0b"]
        assert {path.name for path in files_of(words, {}, tmp_path)} >= {"train.py", "data.csv", "conf.yaml"}
        assert tmp_path / "mod.py" in files_of([PYTHON, "-m", "mod"], {}, tmp_path)

    def test_a_fingerprint_changes_with_the_content(self, tmp_path: Path) -> None:
        path = tmp_path / "a"
        path.write_text("1")
        before = fingerprint(path)
        assert before == fingerprint(path)
        path.write_text("2")
        assert fingerprint(path) != before
        path.unlink()
        assert fingerprint(path).startswith("gone")

    def test_of_a_large_file_size_and_time_are_kept(self, tmp_path: Path) -> None:
        path = tmp_path / "large"
        with path.open("wb") as stream:
            stream.truncate(65 << 20)
        assert fingerprint(path).startswith(f"{65 << 20} bytes")
