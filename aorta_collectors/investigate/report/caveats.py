"""What has to be known before any conclusion is read: what changed between runs, and a criterion chosen after them."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aorta_collectors.analysis.bundles.criterion import Criterion
from aorta_collectors.analysis.captures import TENSORS
from aorta_collectors.investigate.agreement import choice_text
from aorta_collectors.investigate.files import RUNS, Run
from aorta_collectors.investigate.report.conclusion import Conclusion, Standing, numbers
from aorta_collectors.investigate.report.gaps import Gap
from aorta_collectors.investigate.report.subjects import Subject
from aorta_collectors.report.wording import text


@dataclass(frozen=True)
class Change:
    """What --allow-changes let pass, with runs that count before and after it.

    Attributes:
        what: What changed, in words.
        before, after: Names of directories below runs/.
    """

    what: str
    before: tuple[str, ...]
    after: tuple[str, ...]

    @property
    def sentence(self) -> str:
        return (
            f"{self.what} changed between {self.before[-1]} and {self.after[0]} (--allow-changes): what differs "
            "between runs before and after may come from that."
        )

    def parts(self, runs: Collection[str]) -> bool:
        """Whether some of the runs are from before it, and some from after."""
        return any(name in runs for name in self.before) and any(name in runs for name in self.after)


def changes_between(metadata: Mapping[str, Any], runs: Sequence[Run]) -> list[Change]:
    """The changes that have runs on both sides.

    Args:
        runs: The last attempt at each, in the schedule's order.
    """
    found = []
    names = [(run.number, run.directory.name) for run in runs if run.counts]
    for change in metadata.get("changes", ()):
        first = change["before_run"]
        if first is None:
            continue
        before = tuple(name for number, name in names if number < first)
        after = tuple(name for number, name in names if number >= first)
        if before and after:
            found.append(Change(_what(change["what"], metadata.get("files", {})), before, after))
    return found


def _what(lines: Sequence[str], files: Collection[str]) -> str:
    """The files of the commands among the differences, which say most; else the first of all."""
    changed = dict.fromkeys(Path(file).name for file in files if any(file in line for line in lines))
    if changed:
        return text(numbers(changed))
    more = f" and {len(lines) - 1} more" if len(lines) > 1 else ""
    return f"Something ({text(lines[0])}{more})"


def weakened(conclusions: Sequence[Conclusion], changes: Sequence[Change], root: Path) -> Iterator[Conclusion]:
    """Conclusions, of which those that rest on runs from both sides of a change are open questions."""
    for each in conclusions:
        runs = {name for path in each.artifacts if (name := _run_of(path, root))}
        if each.standing is not Standing.OPEN and any(change.parts(runs) for change in changes):
            yield dataclasses.replace(each, standing=Standing.CHANGED)
        else:
            yield each


def _run_of(path: Path, root: Path) -> str:
    """The directory below runs/ in which an artifact lies; empty for another."""
    try:
        parts = path.relative_to(root / RUNS).parts
    except ValueError:
        return ""
    return parts[0] if parts else ""


def chosen_after(metadata: Mapping[str, Any], criterion: Criterion, subjects: Sequence[Subject]) -> str:
    """That the criterion is not the declared one, where tensors are compared at all; else empty."""
    compares = any(TENSORS.collector in subject.collectors for subject in subjects)
    return choice_text(metadata, criterion) if compares or TENSORS.collector in metadata["collect"] else ""


def gaps_of_caveats(changes: Sequence[Change], others: Sequence[str]) -> Iterator[Gap]:
    """The same as gaps, so that nobody who reads only these misses it."""
    for change in changes:
        yield Gap(change.sentence.rstrip("."), (*change.before, *change.after))
    for each in others:
        yield Gap(each.rstrip("."), ())
