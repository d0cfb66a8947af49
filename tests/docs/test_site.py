"""The pages as a site: what mkdocs warns of is an error, and nothing of it comes from another server."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support import PYTHON, ROOT, run


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("site")
    run([PYTHON, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(built)], ROOT).ok()
    return built


def test_each_page_is_in_it(site: Path) -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        assert (site / page.relative_to(ROOT / "docs").with_suffix(".html")).is_file(), page


def test_it_needs_no_network(site: Path) -> None:
    for page in site.rglob("*.html"):
        fetched = re.findall(r"<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=\"?([^\s\">]+)", page.read_text())
        assert fetched
        assert [url for url in fetched if re.match(r"(?:[a-z]+:)?//", url)] == [], page
