"""evidence/index.json: what a report was made of and what it wrote, each with its sha256, for `verify`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aorta_collectors import __version__, strict_json
from aorta_collectors.analysis.bundles.criterion import Criterion
from aorta_collectors.errors import ArtifactError
from aorta_collectors.evidence.directory import Anchor
from aorta_collectors.investigate.agreement import criterion_fields
from aorta_collectors.investigate.evidence import EVIDENCE
from aorta_collectors.investigate.report.reading import Report
from aorta_collectors.schema_check import fault_text, first_error

INDEX = "index.json"
SCHEMA = "investigation.report"


def index_of(report: Report, written: Mapping[str, str]) -> dict[str, Any]:
    """Content of the index.

    Args:
        written: Text of each file that the report wrote, by path below the root, but the index.
    """
    return {
        "schema_version": 1,
        "engine": f"aorta-collectors {__version__}",
        "made_at": report.made_at,
        "root": str(report.investigation.root),
        "criterion": criterion_fields(report.criterion),
        "written": {name: hashlib.sha256(text.encode()).hexdigest() for name, text in written.items()},
        "evidence": [
            {"file": each.name, "command": [*each.view.words], "exit_code": each.code} for each in report.evidence
        ],
        "cited": {_below(report.investigation.root, path): digest for path, digest in report.cited.items()},
    }


def _below(root: Path, path: Path) -> str:
    """Relative to the root for what lies in it, so that it is found where the whole is moved."""
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)


def index_text(index: Mapping[str, Any]) -> str:
    return json.dumps(index, indent=2, allow_nan=False) + "\n"


def read_index(root: Path) -> dict[str, Any]:
    """The index in an investigation's root. Raises ArtifactError if there is none, or it is none."""
    path = root / EVIDENCE / INDEX
    with Anchor(root).open(path.parent) as directory:
        try:
            content: dict[str, Any] = strict_json.loads(directory.read(INDEX))
        except ValueError as error:
            raise ArtifactError(f"{path}: not JSON ({error})") from None
    fault = first_error(SCHEMA, content)
    if fault is not None:
        raise ArtifactError(f"{path}: {fault_text(fault)}")
    return content


def criterion_in(index: Mapping[str, Any]) -> Criterion:
    """The criterion that a report was made with."""
    return Criterion(**index["criterion"])
