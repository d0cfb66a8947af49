"""What has changed from one snapshot to the next, a line each: for a log, and a terminal that can't be drawn on."""

from __future__ import annotations

from aorta_collectors.analysis.snapshot import Cell, Snapshot
from aorta_collectors.report.watch_words import OUTCOMES, findings, first_bad_of, odd, pace, place
from aorta_collectors.report.wording import layer, number, tensor, text

# Of ranks of which something is to be told at once.
_MOST_RANKS = 10


class Changes:
    """Remembers what was told."""

    def __init__(self) -> None:
        self._told: set[tuple[str, str]] = set()
        self._place = ""
        self._steps: int | None = None

    def lines(self, snapshot: Snapshot) -> list[str]:
        """What is new in a snapshot, with the time; what is bad before how far it is."""
        where = place(snapshot)
        if where != self._place:
            self._place, self._steps = where, None
        new = [what for what in self._all(snapshot, where) if (where, what) not in self._told]
        self._told.update((where, what) for what in new)
        progress = snapshot.progress
        if progress is not None and progress.steps != self._steps:
            self._steps = progress.steps
            new.append(f"{where}: {', '.join(_how_far(snapshot))}")
        if snapshot.state == "ended":
            new.append("the sweep has ended" if snapshot.cells else "all processes have ended")
        return [f"{snapshot.at[11:19]} {what}" for what in new]

    def _all(self, snapshot: Snapshot, where: str) -> list[str]:
        """All that is told once."""
        told = [_cell(cell) for cell in snapshot.cells if cell.state == "ended"]
        told += [f"not read: {text(problem)}" for problem in snapshot.problems]
        if snapshot.awaited is not None:
            told.append(f"{where}: {text(snapshot.awaited)}")
        if snapshot.progress is None:
            return told
        told += [f"{where}: {found}" for found in findings(snapshot.progress)]
        ranks = [(rank, what) for rank in snapshot.progress.ranks if (what := odd(rank)) is not None]
        for rank, what in ranks[:_MOST_RANKS]:
            # How far behind, and for how long, is another number each time.
            kind = (rank.state, bool(rank.behind), rank.is_slow)
            if (where, f"{rank.files} {kind}") not in self._told:
                self._told.add((where, f"{rank.files} {kind}"))
                told.append(f"{where}: rank {rank.rank}: step {rank.steps}, {what}")
        if len(ranks) > _MOST_RANKS:
            told.append(f"{where}: and more ranks behind, silent or ended early")
        return told


def _how_far(snapshot: Snapshot) -> list[str]:
    assert snapshot.progress is not None
    magnitudes = snapshot.magnitudes
    parts = pace(snapshot.progress, since=False)
    if magnitudes.worst:
        worst = magnitudes.worst[0]
        left = "" if worst.headroom is None else f" ({worst.headroom:.1f} bits left)"
        parts.append(f"largest {number(worst.abs_max)}{left} {layer(worst.tensor)} {tensor(worst.tensor)}")
    if magnitudes.num_bad:
        parts.append(f"bad tensors: {magnitudes.num_bad}")
    return parts


def _cell(cell: Cell) -> str:
    where = text(cell.cell) if cell.trial is None else f"{text(cell.cell)}, trial {text(cell.trial)}"
    bad = first_bad_of(cell)
    return f"{where}: ended, {OUTCOMES[cell.passed]}, {text(cell.verdict or 'no evidence')}{bad and f', bad: {bad}'}"
