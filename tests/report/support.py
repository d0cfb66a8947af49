"""Reports of captures that lie below a path."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

from aorta_collectors.analysis.database import Database
from aorta_collectors.analysis.report import Report, report_of
from aorta_collectors.analysis.report.found import found_below
from aorta_collectors.analysis.search import captures_below
from aorta_collectors.report.html import write_report

#: What a program may call its layers, and what no page may take for its own.
HOSTILE = (
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "{{ 7 * 7 }}{% raw %}",
    "javascript:alert('1')",
    "\"' onmouseover=alert(1) x='",
    "<!--<script>",
    "\u2028\u202e\x1b[31m%{y}",
    '<a href="http://example.org/">x</a>',
)


def report_below(path: Path) -> Report:
    captures = captures_below(path)
    with Database(captures) as database:
        return report_of(captures, database)


def page_below(path: Path, target: Path | None = None) -> str:
    target = target or path / "report.html"
    write_report(found_below(path), target)
    return target.read_text("utf-8")


def without_scripts(page: str) -> str:
    """The page's own markup."""
    return re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)


def shown_text(page: str) -> str:
    return html.unescape(re.sub(r"<[^>]*>", "", without_scripts(page)))


def figures_of(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return dict(json.loads(found.group(1)))
