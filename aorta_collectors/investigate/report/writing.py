"""Writing a report: REPORT.md, report.html and evidence/ in the investigation's root, each whole, and nothing else."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from aorta_collectors.analysis.bundles.criterion import Criterion
from aorta_collectors.errors import CollectorsError
from aorta_collectors.evidence.directory import Anchor
from aorta_collectors.investigate.evidence import EVIDENCE, Printer
from aorta_collectors.investigate.files import Investigation, utc_now
from aorta_collectors.investigate.report.findings import document_of
from aorta_collectors.investigate.report.listed import INDEX, index_of, index_text
from aorta_collectors.investigate.report.markdown import markdown
from aorta_collectors.investigate.report.page import page
from aorta_collectors.investigate.report.reading import Report, read_report

REPORT, PAGE = "REPORT.md", "report.html"


@dataclass(frozen=True)
class Rendered:
    """
    Attributes:
        files: Text by path below the root: REPORT.md, report.html and what lies in evidence/, but the index.
    """

    report: Report
    files: Mapping[str, str]


def rendered(
    investigation: Investigation,
    criterion: Criterion,
    printer: Printer,
    progress: Callable[[float, float], None],
    made_at: str | None = None,
) -> Rendered:
    """The report as it would be written.

    Args:
        made_at: When it was made, of a report that is made again.

    Raises:
        CollectorsError: Something cannot be read, or jinja2 is not installed.
    """
    report = read_report(investigation, criterion, made_at or utc_now(), printer, progress)
    document = document_of(report)
    files = {f"{EVIDENCE}/{each.name}": each.text for each in report.evidence}
    return Rendered(report, {**files, REPORT: markdown(document), PAGE: page(document, investigation.root)})


def write_report(found: Rendered) -> None:
    """Put it in the place of an earlier one.

    Raises:
        CollectorsError: It cannot be written.
    """
    root = found.report.investigation.root
    index = index_text(index_of(found.report, found.files))
    fresh, old = root / f".{EVIDENCE}.new", root / f".{EVIDENCE}.old"
    try:
        for leftover in (fresh, old):
            shutil.rmtree(leftover, ignore_errors=True)
        fresh.mkdir()
        _fill(root, fresh, {**_below(found.files, EVIDENCE), INDEX: index})
        if os.path.lexists(root / EVIDENCE):
            (root / EVIDENCE).rename(old)
        fresh.rename(root / EVIDENCE)
        shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        raise CollectorsError(f"{root / EVIDENCE} cannot be written: {error.strerror}") from None
    _fill(root, root, {name: found.files[name] for name in (REPORT, PAGE)})


def _below(files: Mapping[str, str], folder: str) -> dict[str, str]:
    prefix = f"{folder}/"
    return {name.removeprefix(prefix): text for name, text in files.items() if name.startswith(prefix)}


def _fill(root: Path, directory: Path, files: Mapping[str, str]) -> None:
    with Anchor(root).open(directory) as opened:
        for name, text in files.items():
            opened.write(name, text.encode())
