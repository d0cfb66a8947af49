"""How verification names several things in a sentence, however many there are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from aorta_collectors.artifacts.process import Process


def some(names: Sequence[str], most: int = 3) -> str:
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown


def ranks_of(processes: Iterable[Process]) -> str:
    return f"rank(s) {some([str(rank) for rank in sorted({process.rank for process in processes})], 8)}"


def named_by(processes: Iterable[Process], key: str) -> list[str]:
    """What stands in a list of any of their summaries, each once."""
    return list(dict.fromkeys(name for process in processes for name in process.summary.get(key, ())))
