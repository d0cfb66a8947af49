"""A snapshot of a run for a terminal of any size: what matters first has room first."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from aorta_collectors.analysis.snapshot import Cell, Magnitudes, Moment, Progress, Snapshot
from aorta_collectors.report.columns import bits, dtype, tail
from aorta_collectors.report.sections import INDENT, Section, arranged, text_lines, text_table
from aorta_collectors.report.sparkline import sparkline
from aorta_collectors.report.watch_words import OUTCOMES, findings, first_bad_of, odd, pace, place
from aorta_collectors.report.wording import layer, number, tensor, text

if TYPE_CHECKING:
    from rich.console import Group
    from rich.text import Text

_WIDE, _LOW = 70, 20
# Ranks of which each has a line of its own, whatever it does.
_FEW_RANKS = 8


def screen(snapshot: Snapshot, width: int, height: int | None = None, *, ascii_only: bool = False) -> Group:
    """What there is to show in about `height` lines of `width` columns; some rows of each table where that is None.

    Lines may be longer where a heading is, and come to more than a very low terminal has: rich crops them.
    """
    most = 2 if height is not None and height < _LOW else 5
    head = [*title(snapshot, width), *_of_trial(snapshot, width, most)]
    sections = [*of_ranks(snapshot.progress), *_of_magnitudes(snapshot, width, ascii_only)]
    cells = _of_cells(snapshot.cells, width)
    sections = [*cells, *sections] if snapshot.state == "ended" else [*sections, *cells]
    return arranged(head, [*sections, *of_problems(snapshot.problems), *_freshness(snapshot, width)], height)


def title(snapshot: Moment, width: int) -> list[Text]:
    """Which trial, its state, and what is waited for."""
    from rich.text import Text

    styles = {"running": "bold green", "waiting": "bold yellow", "ended": "bold cyan"}
    right = f"{snapshot.state} {snapshot.at[11:19]}" if width >= _WIDE else snapshot.state
    line = Text(place(snapshot), style="bold")
    line.truncate(max(1, width - len(right) - 1))
    gap = max(1, min(width, 80) - line.cell_len - len(right))
    lines = [line.append(" " * gap).append(right, style=styles[snapshot.state])]
    if snapshot.awaited is not None:
        lines += [
            Text(line, style="yellow")
            for line in textwrap.wrap(text(snapshot.awaited), width, max_lines=3, placeholder=" ..")
        ]
    elif snapshot.state == "ended":
        lines.append(Text("the sweep has ended" if snapshot.cells else "all processes have ended", style="cyan"))
    return lines


def _of_trial(snapshot: Snapshot, width: int, most: int) -> list[Text]:
    """Its pace, and what is bad, in at most so many lines each."""
    from rich.text import Text

    progress = snapshot.progress
    if progress is None:
        return []
    running = [rank for rank in progress.ranks if rank.state == "running"]
    style = "bold yellow" if running and all(rank.is_slow for rank in running) else ""
    lines = [Text(line, style=style) for line in textwrap.wrap(", ".join(pace(progress, since=True)), width)]
    bad = [
        textwrap.wrap(told, width, subsequent_indent=INDENT, max_lines=most, placeholder=" ..")
        for told in findings(progress)
    ]
    lines += [Text(line, style="red" if index else "bold red") for index, told in enumerate(bad) for line in told]
    if not bad and not snapshot.magnitudes.num_bad:
        so_far = " so far" if snapshot.state == "running" else " in this trial" if len(snapshot.cells) > 1 else ""
        lines.append(Text(f"nothing bad{so_far}", style="green"))
    return lines


def of_ranks(progress: Progress | None) -> list[Section]:
    """The ranks of which something is to be told; nothing of one process that is well."""
    from rich.text import Text

    if progress is None:
        return []
    ranks = progress.ranks
    told = {rank: what for rank in ranks if (what := odd(rank))}
    if len(ranks) == 1 and progress.world_size == 1:
        return [text_lines(Text(f"process {rank.pid} {what}", style="yellow"), []) for rank, what in told.items()]
    shown = sorted(told, key=lambda rank: (rank.state == "running", rank.steps, rank.rank))
    bad = [rank for rank in ranks if rank.first_bad_step is not None and rank not in told]
    shown += sorted(bad, key=lambda rank: rank.first_bad_step or 0)
    if len(ranks) <= _FEW_RANKS:
        shown += [rank for rank in ranks if rank not in shown]
    rows = []
    for rank in shown:
        style = "yellow" if rank in told else ""
        line = Text(f"{INDENT}rank {rank.rank}: step {rank.steps}, {told.get(rank, rank.state)}", style=style)
        if rank.first_bad_step is not None:
            line.append(f", bad since step {rank.first_bad_step}", style="red")
        rows.append(line)
    style = "bold yellow" if told or progress.missing else "bold"
    return [text_lines(Text(_counted(progress), style=style), rows)]


def _counted(progress: Progress) -> str:
    ranks = progress.ranks
    states = {state: sum(rank.state == state for rank in ranks) for state in ("running", "ended", "killed", "gone")}
    told = [f"{count} {state}" for state, count in states.items() if count]
    if progress.missing:
        told.append(f"{progress.missing} of {progress.world_size} not heard of")
    foremost, last = max(rank.steps for rank in ranks), min(rank.steps for rank in ranks)
    return f"ranks: {', '.join(told)}; {f'step {last}' if last == foremost else f'steps {last} to {foremost}'}"


def _of_magnitudes(snapshot: Snapshot, width: int, ascii_only: bool) -> list[Section]:
    from rich.text import Text

    found, progress = snapshot.magnitudes, snapshot.progress
    several = progress is not None and progress.world_size > 1
    sections = []
    if len(found.trend) > 1:
        heading = Text("largest magnitude of each step, against the dtype's limit", style="bold")
        sections.append(text_lines(heading, [sparkline(found.trend, width, ascii_only=ascii_only)]))
    if found.worst:
        sections.append(_worst(found, width, several))
    if found.bad:
        sections.append(_bad(found, width, several))
    return sections


def _worst(found: Magnitudes, width: int, several: bool) -> Section:
    """The tensors that came nearest to their limit."""
    rows = [
        {
            "near the limit": layer(seen.tensor),
            "tensor": tensor(seen.tensor),
            "abs max": number(seen.abs_max),
            "bits left" if width >= _WIDE else "bits": bits(seen.headroom),
            **({"rank": str(seen.rank)} if several else {}),
            **({"step": str(seen.step), "dtype": dtype(seen.dtype)} if width >= _WIDE else {}),
        }
        for seen in found.worst
    ]
    styles = [
        "" if (left := seen.headroom) is None or left >= 4 else "red" if left < 1 else "yellow" for seen in found.worst
    ]
    return text_table(rows, styles, len(rows), width, ("dtype",))


def _bad(found: Magnitudes, width: int, several: bool) -> Section:
    rows = [
        {
            f"bad: {found.num_bad} tensor{'s' if found.num_bad != 1 else ''}": layer(seen.tensor),
            "tensor": tensor(seen.tensor),
            "kind": seen.kind,
            "since step" if width >= _WIDE else "since": str(seen.step),
            **({"rank": str(seen.rank)} if several else {}),
            **({"records": str(seen.records)} if width >= _WIDE else {}),
        }
        for seen in found.bad
    ]
    return text_table(rows, [""] * len(rows), found.num_bad, width, ("kind",))


def _of_cells(cells: Sequence[Cell], width: int) -> list[Section]:
    """What runs, what has ended, the last first, and what is to come."""
    from rich.text import Text

    if len(cells) < 2 and all(cell.state == "running" for cell in cells):
        return []
    ended = [cell for cell in cells if cell.state == "ended"]
    bad, failed = sum(cell.first_bad is not None for cell in ended), sum(cell.passed is False for cell in ended)
    heading = Text(f"trials: {len(ended)} of {len(cells)} ended, {failed} failed, {bad} bad", style="bold")
    shown = [cell for cell in cells if cell.state == "running"] + ended[::-1]
    shown += [cell for cell in cells if cell.state == "to come"]
    size = min(max(len(text(cell.cell)) for cell in shown), max(10, width // 3))
    rows = []
    for cell in shown:
        line = Text(f"{INDENT}{tail(cell.cell, size, '..'):{size}} {text(cell.trial or '-')}  ")
        if cell.state == "ended":
            line.append(OUTCOMES[cell.passed], style="green" if cell.passed else "red")
            line.append(f"  {text(cell.verdict or 'no evidence')}  ").append(first_bad_of(cell), style="red")
        else:
            line.append(cell.state, style="green" if cell.state == "running" else "dim")
        rows.append(line)
    return [text_lines(heading, rows)]


def of_problems(problems: Sequence[str]) -> list[Section]:
    """What could not be read."""
    from rich.text import Text

    if not problems:
        return []
    rows = [Text(f"{INDENT}{text(problem)}", style="yellow") for problem in problems]
    return [text_lines(Text("not read:", style="yellow"), rows)]


def _freshness(snapshot: Snapshot, width: int) -> list[Section]:
    """How old what is shown is."""
    from rich.text import Text

    progress, magnitudes = snapshot.progress, snapshot.magnitudes
    parts = []
    if progress is not None and not progress.has_ended:
        newest = magnitudes.newest_step
        parts.append("no records yet" if newest is None else f"magnitudes up to step {newest}")
        if progress.sample_every is not None and progress.sample_every > 1:
            parts.append(f"clean ones from one step of {number(progress.sample_every)}")
    if magnitudes.passed_over_bytes:
        parts.append(f"{magnitudes.passed_over_bytes / 1e6:.1f} MB of records not read")
    if magnitudes.unreadable_lines:
        parts.append(f"{magnitudes.unreadable_lines} lines are no records")
    return [text_lines(Text(line, style="dim"), []) for line in textwrap.wrap(", ".join(parts), width)]
