"""Names that were observed, and single observations, in a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from aorta_collectors.analysis.bundles.listing import Found, Listing
from aorta_collectors.report import columns
from aorta_collectors.report.tensors_words import exactly, form, place, say_to
from aorta_collectors.report.wording import number, text

if TYPE_CHECKING:
    from rich.console import Console

_MOST_FORMS = 2


def render(found: Listing, console: Console, most: int) -> None:
    """Write the names, a table for each process.

    Args:
        most: Rows of each table.
    """
    say = say_to(console)
    for note in found.notes:
        say(f"note: {text(note)}", "yellow")
    if not found.names:
        say("No tensor was observed, or none of such a name.", "yellow")
    for index, process in enumerate(dict.fromkeys(each.process for each in found.names)):
        names = [each for each in found.names if each.process == process]
        if index:
            say()
        say(f"{text(process)}: {len(names)} names, {sum(each.observations for each in names)} observations", "bold")
        table = columns.table("times", "steps", "NaN/Inf", "values", "form", "name", left=("form",), folded=("name",))
        for each in names[:most]:
            more = f" and {len(each.forms) - _MOST_FORMS} more" if len(each.forms) > _MOST_FORMS else ""
            steps = f"{each.first_step}-{each.last_step}" if each.last_step > each.first_step else f"{each.first_step}"
            bad, style = (str(each.nonfinite), "red") if each.nonfinite else ("", "")
            forms = text("; ".join(each.forms[:_MOST_FORMS]) + more)
            table.add_row(str(each.observations), steps, bad, str(each.kept or ""), forms, text(each.name), style=style)
        console.print(table)
        if len(names) > most:
            say(f"and {len(names) - most} more (--most, --json)", "dim")


def render_shown(found: Sequence[Found], console: Console, most: int, with_values: bool) -> None:
    """Write single observations.

    Args:
        with_values: Whether elements are written too, as torch prints them. Raises ArtifactError where they were not
            kept.
    """
    say = say_to(console)
    for index, each in enumerate(found[:most]):
        of = each.observation
        if index:
            say()
        say(f"{place(of)}, {text(each.bundle.label)}", "bold")
        whose = text(of.module_type or "of the program")
        say(f"{whose}, {of.kind.replace('_', ' of ')}; {form(of)}; {of.numel} elements")
        numbers = (("min", of.min), ("max", of.max), ("mean", of.mean), ("std", of.std))
        say(", ".join(f"{name} {exactly(value)}" for name, value in numbers))
        if of.nan_count or of.inf_count:
            say(f"{number(of.nan_count)} NaN, {number(of.inf_count)} Inf", "red")
        say(of.digest or f"no digest: {text(of.unread)}", "dim")
        kept = (
            f"{of.file}: {of.key}" if of.file else f"values were not kept{f' ({of.left_out})' if of.left_out else ''}"
        )
        say(text(kept), "dim")
        if with_values:
            say(str(each.values()))
    if len(found) > most:
        say()
        say(f"and {len(found) - most} more (--most, --invocation, --json)", "dim")
