"""Investigations as a person makes them, by commands alone, and the parts of a report that a test looks at."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.investigate.support import investigate
from tests.support import Ran


@dataclass(frozen=True)
class Asked:
    """An investigation in `cwd`/root."""

    cwd: Path

    @property
    def root(self) -> Path:
        return self.cwd / "root"

    @property
    def report(self) -> str:
        return (self.root / "REPORT.md").read_text()

    @property
    def conclusions(self) -> list[str]:
        """Of the report's Inference, those that are made automatically: each with its standing and its artifacts."""
        (automatic,) = re.findall(r"^### Automatic\n(.*?)^##", self.report, re.MULTILINE | re.DOTALL)
        return re.findall(r"^- .*?(?=^- |\Z)", automatic, re.MULTILINE | re.DOTALL)

    def conclusion(self, words: str) -> str:
        """The only one that has these words in it."""
        (found,) = [text for text in self.conclusions if words in text]
        return found

    def runs(self, *words: str) -> Ran:
        return investigate(self.cwd, "run", "root", *words)

    def reports(self, *words: str) -> Ran:
        return investigate(self.cwd, "report", "root", *words).ok()

    def verifies(self) -> Ran:
        return investigate(self.cwd, "verify", "root")

    def artifacts_of(self, conclusion: str) -> list[Path]:
        """The files that a conclusion stands on; each is there, and its sha256 is the one in the report."""
        paths = [Path(found) for found in re.findall(r"\]\(<(.*?)>\)", conclusion)]
        assert paths
        for path in paths:
            row = f"(<{path}>) | `{hashlib.sha256(path.read_bytes()).hexdigest()}` |"
            assert row in self.report.partition("## Artifacts")[2]
        return paths


def asked(cwd: Path, kind: str, *words: str) -> Asked:
    """Declare one. Nothing has been run."""
    said = ["--kind", kind, "--question", "What differs?", "--criterion", "nothing does"]
    investigate(cwd, "new", "root", *said, *words).ok()
    return Asked(cwd)


def answered(cwd: Path, kind: str, *words: str, criterion: Sequence[str] = ()) -> Asked:
    """Declare it, make all of its runs, and write the report, which verifies."""
    found = asked(cwd, kind, *words)
    found.runs().ok()
    found.reports(*criterion)
    assert "all is as it was recorded" in found.verifies().ok().out
    return found
