"""The probe in every form that python can run."""

from __future__ import annotations

import zipapp
from pathlib import Path

import pytest

from tests.frontend.compare import PROBE, script


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A directory with the probe in every form that python can run."""
    script(tmp_path / "probe.py")
    script(tmp_path / "scripts" / "probe.py")
    script(tmp_path / "my scripts" / "probe it.py")
    script(tmp_path / "-odd.py")
    script(tmp_path / "documented.py", '"""What it does."""\n' + PROBE)
    script(tmp_path / "noisy" / "__init__.py", "import sys\nprint('package', sys.argv[0], __name__)\n")
    script(tmp_path / "noisy" / "__main__.py")
    script(tmp_path / "noisy" / "inner.py")
    script(tmp_path / "application" / "__main__.py")
    (tmp_path / "link.py").symlink_to("scripts/probe.py")
    zipapp.create_archive(tmp_path / "application", tmp_path / "application.pyz")
    zipapp.create_archive(tmp_path / "application", tmp_path / "application-tool")
    return tmp_path
