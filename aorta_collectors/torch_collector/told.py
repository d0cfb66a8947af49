"""What whoever started a process should be told: evidence that it replaces, and what was asked for and never came."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from aorta_collectors.torch_collector.selection import step_range


def replaced(records: Path, beside: Iterable[Path] = ()) -> Iterator[str]:
    """A sentence where evidence of an earlier launch is about to be replaced; none where there is none.

    Args:
        records: Of lines. A trial of a sweep has made it itself, and it is empty.
        beside: Other files that go with it.
    """
    try:
        is_there = records.stat().st_size > 0
    except OSError:
        return
    if is_there:
        others = len(list(beside))
        more = f" and {others} file(s) that go with it" if others else ""
        yield f"evidence of an earlier launch is replaced: {records}{more}; another directory keeps both"


def never_came(unmatched: Iterable[str], steps: Iterable[str] | None, seen: int) -> Iterator[str]:
    """Sentences on what the options name and this process did not have.

    Args:
        unmatched: Patterns of `scope` that no module was meant by.
        steps: Words of the option.
        seen: Steps that have begun.
    """
    patterns = list(unmatched)
    if patterns:
        yield f"scope: no module matches {', '.join(patterns)}"
    late = [word for word in steps or () if step_range(word)[0] > seen]
    if late:
        yield f"steps: {','.join(late)} asked for, and {seen} step(s) ran"
