"""One HTML file that shows a whole run, with nothing to load from anywhere."""

from __future__ import annotations

from pathlib import Path

from aorta_collectors.analysis.connection import Progress
from aorta_collectors.analysis.database import Database
from aorta_collectors.analysis.report import Report, report_of
from aorta_collectors.analysis.report.found import Found
from aorta_collectors.analysis.report.profiled import profiled_of
from aorta_collectors.errors import CollectorsError
from aorta_collectors.evidence.directory import Anchor
from aorta_collectors.report.html.page import page


def read_report(found: Found, progress: Progress | None = None) -> Report:
    """Read all that it shows. Raises CollectorsError."""
    profiled = profiled_of(found.numerics, progress)
    with Database(found.captures, progress) as database:
        return report_of(found.captures, database, found.numerics, profiled)


def write_report(found: Found, target: Path, progress: Progress | None = None) -> None:
    """Write the report; whole or not at all. Links in it are relative to where it lies.

    Args:
        target: A file, which is replaced, or none yet. Its directory must be there.

    Raises:
        CollectorsError: The records cannot be read, the file not be written, or what draws is not installed.
    """
    if target.exists() and not target.is_file():  # a device, or a pipe, would be gone
        raise CollectorsError(f"{target} is no regular file, and would be replaced by one: name another")
    content = page(read_report(found, progress), target.parent)
    with Anchor(target.parent).open(target.parent) as directory:
        directory.write(target.name, content.encode("utf-8", "backslashreplace"))
