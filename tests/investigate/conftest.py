"""The commands of this environment are found by name, as where somebody has activated it."""

from __future__ import annotations

import os

import pytest

from tests.support import PYTHON


@pytest.fixture(autouse=True)
def _activated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.pathsep.join((os.path.dirname(PYTHON), os.environ.get("PATH", ""))))
