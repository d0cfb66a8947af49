"""Verifying one trial's artifacts: open them safely, ask the collector, and never take a failure for a yes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from aorta_collectors.api import Collector, Expected, Verdict, Verification
from aorta_collectors.errors import ArtifactError
from aorta_collectors.evidence.directory import Anchor, ArtifactDirectory, DirectoryMissing
from aorta_collectors.printable import printable

# What was seen before a process died is worth knowing.
_READABLE = (Verdict.CAPTURED, Verdict.INCOMPLETE)
# Digests are taken of what verification has read, and of other files up to this many bytes together: a program can
# leave a sparse file of a size that nobody could ever read.
_OTHERS_BYTES = 8 << 30


@dataclass(frozen=True)
class Checked:
    """A verification with what else was read on the way.

    Attributes:
        files: Sizes in bytes of all files.
        sha256: Digests of those whose content is vouched for.
    """

    verification: Verification
    files: Mapping[str, int] = field(default_factory=dict)
    sha256: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, float | int | str] = field(default_factory=dict)
    step_times_ms: Sequence[float] = ()


def check_artifacts(collector: Collector, anchor: Anchor, directory: Path, expected: Expected) -> Checked:
    """Verify the artifacts in `directory`. Never raises: what cannot be read is not evidence."""

    def check(artifacts: ArtifactDirectory) -> Checked:
        verification = collector.verify(artifacts, expected)
        files = dict(artifacts.sizes())
        if verification.verdict not in _READABLE:
            return Checked(verification, files)
        metrics = {
            name: printable(value) if isinstance(value, str) else value
            for name, value in collector.summarize(artifacts).items()
        }
        times = tuple(collector.step_times_ms(artifacts))
        return Checked(verification, files, _digests(artifacts), metrics, times)

    return _checked(check, anchor, directory)


def check_again(
    collector: Collector, anchor: Anchor, directory: Path, expected: Expected, vouched_for: Sequence[str]
) -> Checked:
    """The same at a later time, with the digests of the files `vouched_for` as far as they are still there."""

    def check(artifacts: ArtifactDirectory) -> Checked:
        verification = collector.verify(artifacts, expected)
        files = dict(artifacts.sizes())
        if verification.verdict is not Verdict.CAPTURED:
            return Checked(verification, files)
        return Checked(verification, files, {name: artifacts.sha256(name) for name in vouched_for if name in files})

    return _checked(check, anchor, directory)


def check_rest(anchor: Anchor, directory: Path, vouched_for: Sequence[str]) -> Checked:
    """What retention has left of the artifacts. The collector is not asked: without the rest, it can say nothing."""

    def check(artifacts: ArtifactDirectory) -> Checked:
        files = dict(artifacts.sizes())
        digests = {name: artifacts.sha256(name) for name in vouched_for if name in files}
        return Checked(Verification(Verdict.PRUNED, ""), files, digests)

    return _checked(check, anchor, directory)


def _checked(check: Callable[[ArtifactDirectory], Checked], anchor: Anchor, directory: Path) -> Checked:
    try:
        with anchor.open(directory) as artifacts:
            checked = check(artifacts)
        reason = printable(checked.verification.reason)
        return replace(checked, verification=replace(checked.verification, reason=reason))
    except DirectoryMissing:
        reason = f"the artifact directory {directory.name} is gone: the program, or what it ran, removed it"
        return Checked(Verification(Verdict.MISSING, reason))
    except ArtifactError as error:
        return Checked(Verification(Verdict.INVALID, printable(str(error))))
    except Exception as error:
        reason = f"verification itself failed: {type(error).__name__}: {printable(str(error))}"
        return Checked(Verification(Verdict.INVALID, reason))


def _digests(artifacts: ArtifactDirectory) -> dict[str, str]:
    digests = artifacts.read_so_far()
    left = _OTHERS_BYTES
    for name, size in artifacts.sizes().items():
        if name not in digests and size <= left:
            left -= size
            digests[name] = artifacts.sha256(name)
    return dict(sorted(digests.items()))
