"""Real artifacts, written once by a small armed script, for tests to copy and damage."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from aorta_collectors.layer_numerics.names import RUN_ID_VARIABLE
from tests.support import PYTHON, TRAIN, run

RUN_ID = "trial-1"


@pytest.fixture(scope="session")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clean run of five steps (clean/), and one that raises in step 3 after a huge value (bad/)."""
    place = tmp_path_factory.mktemp("captured")
    (place / "train.py").write_text(TRAIN)
    armed = [PYTHON, "-m", "aorta_collectors.layer_numerics", "train.py"]
    common = {RUN_ID_VARIABLE: RUN_ID, "NANLOG_SAMPLE_EVERY": "1"}
    run(armed, place, {**common, "NANLOG_DIR": "clean"}).ok()
    bad = {**common, "NANLOG_DIR": "bad", "NANLOG_HUGE_THRESHOLD": "1e-6"}
    ran = run([*armed, "--mode", "raise"], place, bad)
    assert (ran.code, "RuntimeError: boom" in ran.err) == (1, True)
    return place


@pytest.fixture
def artifacts(captured: Path, tmp_path: Path) -> Callable[..., Path]:
    """A fresh copy of a run's artifacts."""

    def copy(name: str = "clean") -> Path:
        return Path(shutil.copytree(captured / name, tmp_path / "trial" / "layer_numerics"))

    return copy
