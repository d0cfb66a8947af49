"""journal.jsonl: what was declared, recorded at the start, and said of each run at its end, by digest, line by line.

run.json has the digests of a run's files, and nothing above it would have that of run.json. So each one that says how a
run ended has a line here, and so has each part of metadata.json. Every line holds the digest of the line before it:
whoever changes one has to rewrite all that follow, and the digest of the last line is another one then.

    {"at": "2026-11-29T10:15:00.1+00:00", "what": "ended", "of": "runs/001-baseline-1/run.json", "sha256": "9f...",
     "previous": "41..."}
"""

from __future__ import annotations

import datetime
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aorta_collectors import strict_json
from aorta_collectors.errors import ArtifactError
from aorta_collectors.evidence.directory import Anchor
from aorta_collectors.schema_check import first_error

JOURNAL = "journal.jsonl"
DECLARED, STARTED, CHANGES, ENDED = "declared", "started", "changes", "ended"
# Of metadata.json, what is recorded at the first start; what follows from --allow-changes; the rest is declared.
_STARTED = ("started_at", "environment", "revisions", "files")
_CHANGES = ("changes",)


@dataclass(frozen=True)
class Line:
    """
    Attributes:
        what: DECLARED, STARTED, CHANGES or ENDED.
        of: A file, below the root.
        sha256: Of a run.json; or of a part of metadata.json, as `parts_of` makes it.
        previous: sha256 of the line before; None of the first.
        own: sha256 of the line itself.
    """

    what: str
    of: str
    sha256: str
    previous: str | None
    own: str


def parts_of(metadata: Mapping[str, Any]) -> dict[str, str]:
    """The digest of each part of metadata.json that there is by now, whatever order its keys have."""
    parts = {DECLARED: [name for name in metadata if name not in (*_STARTED, *_CHANGES)]}
    if metadata["started_at"] is not None:
        parts[STARTED] = [name for name in _STARTED if name in metadata]
    if "changes" in metadata:
        parts[CHANGES] = list(_CHANGES)
    return {what: _digest({name: metadata[name] for name in names}) for what, names in parts.items()}


def _digest(content: Mapping[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def note(root: Path, what: str, of: str, sha256: str) -> None:
    """Add a line, before that which it tells of is written: of a file that is in its place, there is one in any case.

    One that says what the last of its kind says is left out. Raises ArtifactError.
    """
    text = _read(root)
    lines = text.splitlines()
    same = [line for line in map(_parsed, lines) if line is not None and (line.what, line.of) == (what, of)]
    if same and same[-1].sha256 == sha256:
        return
    line = {
        "at": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="microseconds"),
        "what": what,
        "of": of,
        "sha256": sha256,
        "previous": hashlib.sha256(lines[-1]).hexdigest() if lines else None,
    }
    before = b"".join(each + b"\n" for each in lines)
    with Anchor(root).open(root) as directory:
        directory.write(JOURNAL, before + json.dumps(line).encode() + b"\n")


def read_journal(root: Path) -> list[Line]:
    """All lines; none where there is no journal. Raises ArtifactError if it cannot be read, or a line is none."""
    found = []
    for number, text in enumerate(_read(root).splitlines(), 1):
        line = _parsed(text)
        if line is None:
            raise ArtifactError(f"{root / JOURNAL}: line {number} is not as this package writes it")
        found.append(line)
    return found


def _read(root: Path) -> bytes:
    with Anchor(root).open(root) as directory:
        return directory.read(JOURNAL) if JOURNAL in directory.sizes() else b""


def _parsed(text: bytes) -> Line | None:
    try:
        content = strict_json.loads(text)
    except ValueError:
        return None
    if first_error("investigation.journal", content) is not None:
        return None
    own = hashlib.sha256(text).hexdigest()
    return Line(content["what"], content["of"], content["sha256"], content["previous"], own)
