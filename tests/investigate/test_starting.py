"""What holds for all runs: recorded at the first start, and held against the present at each later one."""

from __future__ import annotations

from pathlib import Path

import pytest

from aorta_collectors.investigate.files import Investigation
from aorta_collectors.investigate.starting import NotAsBefore, started
from tests.investigate.support import declared, investigate
from tests.investigate.test_revisions import git


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A work tree with notes and a module beside the script that a command names."""
    found = tmp_path / "project"
    found.mkdir()
    for name in ("notes.md", "model.py"):
        (found / name).write_text("1")
    git(found, "init", "-q")
    git(found, "add", ".")
    git(found, "commit", "-q", "-m", "first")
    return found


@pytest.fixture
def begun(tmp_path: Path, project: Path) -> Investigation:
    commands = {"baseline": "python train.py"}
    root = declared(tmp_path / "root", project, commands=commands).investigation
    return started(root, 1, allow_changes=False)


class TestWhatMayChange:
    def test_notes_may_and_a_module_of_the_work_tree_may_not(self, begun: Investigation, project: Path) -> None:
        (project / "notes.md").write_text("2")
        assert started(begun, 2, allow_changes=False) is begun
        (project / "model.py").write_text("2")
        with pytest.raises(NotAsBefore) as refused:
            started(begun, 2, allow_changes=False)
        assert refused.value.lines[1].startswith(f"  {project}/model.py: as committed before, sha256:")
        assert "tracked source files (.py, .pyi, ...) of their work trees" in refused.value.lines[2]
        went_on = started(begun, 2, allow_changes=True)
        assert started(went_on, 3, allow_changes=False) is went_on

    def test_the_interpreters_own_tree_is_told_apart(self, begun: Investigation, project: Path) -> None:
        told = {tree: revision.get("of") for tree, revision in begun.metadata["revisions"].items()}
        assert told.pop(str(project)) is None
        assert set(told.values()) <= {"the interpreter's environment"}


def test_on_the_screen_each_change_has_its_line(begun: Investigation, project: Path, tmp_path: Path) -> None:
    (project / "model.py").write_text("2")
    (project / "train.py").write_text("2")
    ran = investigate(tmp_path, "run", str(begun.root))
    lines = ran.err.splitlines()
    assert ran.code == 1
    assert lines[0].startswith("Error: not as it was when the first run was started")
    named = [line.split()[0] for line in lines if line.startswith(f"  {project}")]
    assert named == [f"{project}/model.py:", f"{project}/train.py:"]
    assert lines[-1].endswith("--allow-changes goes on, and records what differs [error]")
    assert "\\n" not in ran.err
