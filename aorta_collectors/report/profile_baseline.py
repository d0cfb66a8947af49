"""A profile beside its baseline: the grade, the whole step, phases, and the bricks that changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from aorta_collectors.analysis.numerics.significance import LEAST
from aorta_collectors.analysis.profile_baseline import Baseline, Change
from aorta_collectors.report import columns
from aorta_collectors.report.profile_words import ms, passed, width_of
from aorta_collectors.report.wording import text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_STYLES = {"A": "bold green", "B": "green", "C": "yellow", "D": "yellow", "E": "bold red", "F": "bold red"}
_VERDICTS = {"slower": "red", "faster": "green"}
_NAMES = 8
_WIDE = 80


def render(found: Baseline, console: Console, most: int | None) -> None:
    """Write what a person wants to know first, first.

    Args:
        most: Bricks that are listed; None for all.
    """
    from rich.text import Text

    def say(line: str, style: str = "") -> None:
        console.print(Text(line, style=style), soft_wrap=not console.is_terminal)

    say(f"baseline  {text(found.before)}")
    say(f"now       {text(found.after)}")
    for difference in found.unlike:
        say(f"unlike    {text(difference)}", "yellow")
    say("")
    if found.step is None:
        say("Nothing to compare: a side has no measured steps (step_metrics: on writes a line for each).", "bold red")
    elif found.grade is None:
        say(f"No grade: not enough steps ({found.step.steps}; {LEAST} on each side at least).", "bold yellow")
    else:
        unit = "a step" if found.per == "step" else f"a {found.per}"
        verdict = {"same": "no significant difference"}.get(found.step.verdict, found.step.verdict)
        say(f"Grade {found.grade}: {_factor(found.ratio)} the time of {unit}, {verdict}.", _STYLES[found.grade])
    if found.step is not None:
        say("")
        console.print(_table([found.step, *found.phases], "phase", None, console))
    if found.bricks:
        say("")
        shown = list(found.bricks) if most is None else _shown(found.bricks, most)
        console.print(_table(shown, "brick", "pass", console))
        if len(shown) < len(found.bricks):
            say(f"... {len(found.bricks) - len(shown)} more (--most N, --all)", "dim")
    for what, layers in (("only in the baseline", found.missing), ("new", found.new)):
        if layers:
            more = f" and {len(layers) - _NAMES} more" if len(layers) > _NAMES else ""
            say(f"{what}: {', '.join(text(layer) for layer in layers[:_NAMES])}{more}", "yellow")
    say("p: Mann-Whitney U over steps, two-sided, adjusted by Holm; self time of bricks, all calls of a step", "dim")


def _shown(bricks: Sequence[Change], most: int) -> list[Change]:
    """Those that changed most, either way, in the order in which they are."""
    largest = sorted(range(len(bricks)), key=lambda index: -abs(bricks[index].difference_ms))[:most]
    return [bricks[index] for index in sorted(largest)]


def _table(changes: Sequence[Change], what: str, direction: str | None, console: Console) -> Table:
    from rich.text import Text

    width = width_of(console)
    numbers = ["before ms", "now ms", "diff ms", "ratio", "p"] if width >= _WIDE else ["now ms", "diff ms", "ratio"]
    headings = [what, *([direction] if direction else []), *numbers, "verdict"]
    listed = columns.table(*headings, left=(what, "pass", "verdict"))
    dots = "..." if columns.ascii_only(console) else "\u2026"
    room = max(12, width - (_WIDE - 16 if width >= _WIDE else 46))
    for change in changes:
        style = _VERDICTS.get(change.verdict, "")
        unknown = "not enough steps" if change.steps else "no spans"
        verdict = unknown if change.verdict == "unknown" else change.verdict
        cells = {
            "before ms": ms(change.before_ms),
            "now ms": ms(change.after_ms),
            "diff ms": f"{change.difference_ms:+.3g}",
            "ratio": _factor(change.ratio),
            "p": "-" if change.p_value is None else "<1e-6" if change.p_value < 1e-6 else f"{change.p_value:.2g}",
        }
        name = Text(columns.tail(change.name, room, dots))
        of_pass = [passed(change.direction)] if direction else []
        listed.add_row(name, *of_pass, *(cells[heading] for heading in numbers), Text(verdict, style=style))
    return listed


def _factor(ratio: float | None) -> str:
    return "-" if ratio is None else f"x{ratio:.3g}"
