"""A run of numerics for a terminal of any size: how far it is, how the loss goes, and which bricks take the time."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from aorta_collectors.analysis.top_snapshot import Look, Span, Top, TopBrick, TopStep, Training
from aorta_collectors.report.profile_words import amount, duration, passed, percent, ratio
from aorta_collectors.report.sections import INDENT, Section, arranged, text_lines, text_table
from aorta_collectors.report.top_curve import curve
from aorta_collectors.report.watch import of_problems, of_ranks, title
from aorta_collectors.report.watch_words import duration as lasting
from aorta_collectors.report.watch_words import findings, pace
from aorta_collectors.report.wording import number, text

if TYPE_CHECKING:
    from rich.console import Group
    from rich.text import Text

_MEDIUM, _WIDE = 60, 76
# From so many lines on the loss has a chart, of so many rows.
_TALL, _CHART_ROWS = 32, 9
# Of named steps beside bricks, and of ranks on a terminal.
_MOST_STEPS, _MOST_RANKS = 12, 5

#: By what bricks may be sorted: a word for the screen, and what comes first is least by this.
SORTS: Mapping[str, Callable[[TopBrick], tuple[object, ...]]] = MappingProxyType(
    {
        "time": lambda brick: (-brick.self_us,),
        "mean": lambda brick: (-(brick.mean_us or 0.0),),
        "CV": lambda brick: (-(brick.cv or 0.0),),
        "efficiency": lambda brick: (brick.efficiency is None, brick.efficiency or 0.0),
        "name": lambda brick: (brick.layer, brick.direction != "forward"),
    }
)


def screen(top: Top, width: int, height: int | None = None, *, ascii_only: bool = False, sort: str = "time") -> Group:
    """What there is to show in about `height` lines of `width` columns; some rows of each table where that is None.

    Args:
        sort: One of SORTS.
    """
    head = [*title(top, width), *_of_progress(top, width)]
    sections = _of_stop(top, width)
    sections += [replace(section, asks=min(section.total, _MOST_RANKS)) for section in of_ranks(top.progress)]
    if top.training is not None:
        sections += _of_loss(top.training, width, _CHART_ROWS if height is None or height >= _TALL else 1, ascii_only)
    if top.span is not None:
        sections += _of_bricks(top, top.span, width, sort)
        sections += _of_steps(top.steps, width, has_bricks=bool(top.bricks))
    sections += _of_looks(top, width)
    return arranged(head, [*sections, *of_problems(top.problems), *_of_reading(top, width)], height)


def _of_progress(top: Top, width: int) -> list[Text]:
    """Its pace, what a step gets done, and what is bad."""
    from rich.text import Text

    lines: list[Text] = []
    if len(top.cells) > 1:
        ended = sum(cell.state == "ended" for cell in top.cells)
        failed = sum(cell.passed is False for cell in top.cells)
        lines.append(Text(f"trials: {ended} of {len(top.cells)} ended, {failed} failed"))
    progress = top.progress
    if progress is None:
        return lines
    running = [rank for rank in progress.ranks if rank.state == "running"]
    style = "bold yellow" if running and all(rank.is_slow for rank in running) else ""
    lines += [Text(line, style=style) for line in textwrap.wrap(", ".join(pace(progress, since=True)), width)]
    said = _done(top.training) if top.training is not None else []
    if top.efficiency is not None:
        said.append(f"efficiency of bricks {percent(top.efficiency)}")
    lines += [Text(line) for line in textwrap.wrap(", ".join(said), width)]
    for told in findings(progress):
        lines += [Text(line, style="bold red") for line in textwrap.wrap(told, width, subsequent_indent=INDENT)][:3]
    return lines


def _done(training: Training) -> list[str]:
    """What the last step got done."""
    rates = [(training.tokens_per_s, "tokens/s"), (training.samples_per_s, "samples/s")]
    said = [f"{amount(rate)} {unit}" for rate, unit in rates if rate is not None][:1]
    if training.step_ms is not None:
        said.append(f"step {duration(training.step_ms * 1000)}")
    if training.mfu is not None:
        said.append(f"MFU {percent(training.mfu)}")
    if training.grad_norm is not None:
        said.append(f"gradient norm {_value(training.grad_norm)}")
    if training.memory_used_mb is not None:
        of = f" of {training.memory_total_mb / 1000:.3g}" if training.memory_total_mb else ""
        said.append(f"memory {training.memory_used_mb / 1000:.3g}{of} GB")
    if training.eta_s is not None:
        said.append(f"ETA {lasting(training.eta_s)}")
    return said


def _value(value: float | str) -> str:
    return text(value) if isinstance(value, str) else number(float(f"{value:.4g}"))


def _of_stop(top: Top, width: int) -> list[Section]:
    from rich.text import Text

    if not top.stopped:
        return []
    said = f"stopped at step {top.stopped['step']}, {text(top.stopped['layer'])}"
    causes = [cause for cause in top.stopped.get("causes", ()) if isinstance(cause, Mapping)]
    lines = [line for cause in causes for line in textwrap.wrap(_cause(cause), max(10, width - len(INDENT)))]
    return [text_lines(Text(said, style="bold red"), [Text(f"{INDENT}{line}") for line in lines])]


def _cause(cause: Mapping[str, object]) -> str:
    return ": ".join(text(cause[key]) for key in ("kind", "evidence") if cause.get(key))


def _of_loss(training: Training, width: int, rows: int, ascii_only: bool) -> list[Section]:
    from rich.text import Text

    if training.loss is None:
        return []
    style = "bold red" if isinstance(training.loss, str) else "bold"
    heading = Text(f"loss {_value(training.loss)}", style=style)
    if training.loss_ema is not None:
        heading.append(f", EMA({training.smoothing:g}) {_value(training.loss_ema)}", style="cyan")
    if training.best_loss is not None:
        heading.append(f", best {_value(training.best_loss)} in step {training.best_loss_step}", style="green")
    if len(training.curve) < 2:
        return [text_lines(heading, [])]

    def draw(count: int) -> Group:
        from rich.console import Group

        heading.no_wrap, heading.overflow = True, "crop"
        return Group(heading, curve(training, width, count, ascii_only=ascii_only))

    return [Section(1, draw, rows, asks=rows)]


def _of_bricks(top: Top, span: Span, width: int, sort: str) -> list[Section]:
    from rich.text import Text

    if not top.bricks:
        why = "off" if top.profile in ("", "off") else f"{text(top.profile)}, but nothing was timed yet"
        return [text_lines(Text(f"no bricks: profile is {why}", style="yellow"), [])]
    heading = f"bricks, {_when(span)}" if width >= _MEDIUM else "brick"
    has_looks = any(brick.escalations for brick in top.bricks)
    rows, styles = [], []
    for brick in sorted(top.bricks, key=SORTS[sort]):
        row = {heading: text(brick.layer), "pass": passed(brick.direction), "of step": percent(brick.share)}
        row["mean"] = duration(brick.mean_us)
        row |= {"CV": ratio(brick.cv)} if width >= _MEDIUM else {}
        row["effic." if width >= _MEDIUM else "eff."] = percent(brick.efficiency)
        row |= {"bound": brick.bound or "-"} if width >= _MEDIUM else {}
        row |= {"looks": str(brick.escalations or "")} if width >= _WIDE and has_looks else {}
        rows.append(row)
        styles.append("yellow" if brick.escalations else "")
    return [text_table(rows, styles, len(rows), width, ("bound",))]


def _when(span: Span) -> str:
    """Which time numbers are of."""
    steps = f"{span.steps} step{'' if span.steps == 1 else 's'}"
    return f"last {steps}" if span.source == "spans" else f"all {steps}"


def _of_steps(steps: Sequence[TopStep], width: int, *, has_bricks: bool) -> list[Section]:
    """The named steps; a few where bricks tell more."""
    shown = steps[: _MOST_STEPS if has_bricks else None]
    rows = [
        {
            "named step": text(step.name),
            "pass": passed(step.direction),
            "of step": percent(step.share),
            "mean": duration(step.mean_us),
            **({"calls": str(step.calls)} if width >= _MEDIUM else {}),
        }
        for step in shown
    ]
    return [text_table(rows, [""] * len(rows), len(steps), width)] if rows else []


def _of_looks(top: Top, width: int) -> list[Section]:
    """Escalations, the newest first."""
    from rich.text import Text

    if not top.looks:
        return []
    more = f", {top.looks_suppressed} not taken (rate_limit)" if top.looks_suppressed else ""
    taken = max(top.looks_taken, len(top.looks))
    heading = Text(f"escalations: {taken}{more}", style="bold")
    several = top.progress is not None and top.progress.world_size > 1
    rows = [Text(f"{INDENT}{_escalated(look, several, width)}") for look in top.looks]
    return [text_lines(heading, rows)]


def _escalated(look: Look, several: bool, width: int) -> str:
    what = "CV" if look.reason == "unstable" else "efficiency"
    found = f"{what} {look.value:.2g}" if what == "CV" else f"{what} {percent(look.value)}"
    dominant = f"mostly {look.dominant}" if look.dominant else "no breakdown"
    rank = f" rank {look.rank}" if several else ""
    rest = f" {passed(look.direction)}: {found}, {dominant}"
    room = max(8, width - len(INDENT) - len(f"step {look.step}{rank} ") - len(rest))
    name = text(look.layer)
    name = name if len(name) <= room else f"..{name[-(room - 2) :]}"
    return f"step {look.step}{rank} {name}{rest}"


def _of_reading(top: Top, width: int) -> list[Section]:
    """How old what is shown is, and what was left out."""
    from rich.text import Text

    parts = []
    if top.span is not None and top.span.source == "summary" and top.state == "running":
        parts.append("bricks and named steps are brought up to date every 30 s")
    if top.passed_over_bytes:
        parts.append(f"{top.passed_over_bytes / 1e6:.1f} MB of lines not read")
    if top.unreadable_lines:
        parts.append(f"{top.unreadable_lines} lines are none")
    return [text_lines(Text(line, style="dim"), []) for line in textwrap.wrap(", ".join(parts), width)]
