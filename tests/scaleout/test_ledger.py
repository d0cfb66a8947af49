"""The ledger of a submission: read back as it was written, and refused where it is another's or none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from aorta_collectors.errors import ArtifactError, CollectorsError
from aorta_collectors.scaleout.ledger import LEDGER, Entry, Submission, open_submission
from aorta_collectors.scaleout.request import Request

REQUEST = Request("/r.yaml", "ab" * 32, ("python", "t.py"), "layer_numerics", (("/m.json", "cd" * 32),), "/work")
ENTRY = Entry(2, "slurm", "1000_1", "/out/submitit/1", "login1", "lost", "its node failed")


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    written = Submission(REQUEST, 3, {"baseline": ENTRY})
    written.write(tmp_path)
    assert open_submission(tmp_path, REQUEST) == written
    assert open_submission(tmp_path / "elsewhere", REQUEST) == Submission(REQUEST)


def test_a_recipe_that_has_moved_is_the_same(tmp_path: Path) -> None:
    Submission(REQUEST, 1, {"baseline": ENTRY}).write(tmp_path)
    moved = replace(REQUEST, recipe="/moved.yaml", mitigation_files=(("/moved.json", "cd" * 32),))
    assert open_submission(tmp_path, moved).request == moved


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        (replace(REQUEST, recipe_sha256="ef" * 32), "recipe"),
        (replace(REQUEST, command=("python", "t.py", "--lr", "2")), "command"),
        (replace(REQUEST, collect=""), "--collect"),
        (replace(REQUEST, mitigation_files=(("/m.json", "ef" * 32),)), "mitigations files"),
        (replace(REQUEST, cwd="/", command=()), "command, working directory"),
    ],
)
def test_another_sweep_is_refused_with_what_has_changed(tmp_path: Path, changed: Request, named: str) -> None:
    Submission(REQUEST).write(tmp_path)
    with pytest.raises(CollectorsError) as error:
        open_submission(tmp_path, changed)
    assert f"(changed: {named})" in str(error.value)
    assert REQUEST.digest[:12] in str(error.value)
    assert changed.digest[:12] in str(error.value)


@pytest.mark.parametrize("content", ["", "[]", '{"cells": {}}', '{"cells": {"a": {"job": 1}}}', "[" * 100_000])
def test_what_is_no_ledger_is_refused_by_its_path(tmp_path: Path, content: str) -> None:
    (tmp_path / LEDGER).write_text(content)
    with pytest.raises(ArtifactError, match=r"submission\.json: not the ledger of a submission"):
        open_submission(tmp_path, REQUEST)
