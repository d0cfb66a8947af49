"""Verifying one trial's artifacts: open them safely, ask the collector, and never take a failure for a yes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from aorta_collectors.api import Collector, Expected, Verdict, Verification
from aorta_collectors.errors import ArtifactError
from aorta_collectors.evidence.directory import Anchor, DirectoryMissing

# What was seen before a process died is worth knowing.
_READABLE = (Verdict.CAPTURED, Verdict.INCOMPLETE)


@dataclass(frozen=True)
class Checked:
    """A verification with what else was read on the way."""

    verification: Verification
    files: Mapping[str, int] = field(default_factory=dict)
    sha256: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, float | int | str] = field(default_factory=dict)


def check_artifacts(collector: Collector, anchor: Anchor, directory: Path, expected: Expected) -> Checked:
    """Verify the artifacts in `directory`. Never raises: what cannot be read is not evidence."""
    try:
        with anchor.open(directory) as artifacts:
            verification = collector.verify(artifacts, expected)
            files = dict(artifacts.sizes())
            sha256 = {name: artifacts.sha256(name) for name in files}
            metrics = dict(collector.summarize(artifacts)) if verification.verdict in _READABLE else {}
        return Checked(verification, files, sha256, metrics)
    except DirectoryMissing:
        reason = f"the artifact directory {directory.name} is gone: the program, or what it ran, removed it"
        return Checked(Verification(Verdict.MISSING, reason))
    except ArtifactError as error:
        return Checked(Verification(Verdict.INVALID, str(error)))
    except Exception as error:
        reason = f"verification itself failed: {type(error).__name__}: {error}"
        return Checked(Verification(Verdict.INVALID, reason))
