"""What the program prints without us, once for all launchers."""

from __future__ import annotations

import pytest

from tests.launchers.commands import lay_out
from tests.support import run


@pytest.fixture(scope="session")
def bare(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The lines of train.py."""
    ran = run(["python", "train.py", "a", "b"], lay_out(tmp_path_factory.mktemp("bare")))
    return ran.ok().out.splitlines()
