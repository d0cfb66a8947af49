"""The recipe of the how-to page does what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tests.host.support import aorta
from tests.support import ROOT

PAGE = (ROOT / "docs" / "how-to" / "sweep-a-script.md").read_text(encoding="utf-8")


def test_the_page_shows_the_recipe() -> None:
    shown = re.search(r"```yaml\n(.*?)```", PAGE, flags=re.S)
    assert shown is not None
    assert yaml.safe_load(shown.group(1)) == yaml.safe_load((ROOT / "recipes" / "script.yaml").read_text())


@pytest.mark.sweep
def test_the_recipe_prints_what_the_page_shows(tmp_path: Path) -> None:
    (tmp_path / "recipes").symlink_to(ROOT / "recipes")
    ran = aorta(["sweep", "run", "--recipe", "recipes/script.yaml", "--output", "out"], tmp_path).ok()
    shown = re.search(r"\$ aorta sweep run .*?\n(.*?)```", PAGE, flags=re.S)
    assert shown is not None
    printed = [" ".join(line.split()) for line in ran.out.splitlines()]
    for line in shown.group(1).splitlines():
        if line != "...":
            assert " ".join(line.split()) in printed
