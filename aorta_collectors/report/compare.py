"""A comparison in a terminal: the verdict, where the sides part, and how the difference spreads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from aorta_collectors.analysis.compare_judgement import BAD_ALONE
from aorta_collectors.analysis.compare_result import Compared, Comparison, Counts, Divergence, Fields
from aorta_collectors.report import columns
from aorta_collectors.report.wording import COUNTS, number, read_at, text

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

_NUMBERS = (
    ("finite_abs_max", "abs max"),
    ("finite_min", "min"),
    ("finite_max", "max"),
    ("finite_mean", "mean"),
    ("finite_rms", "rms"),
)


def tolerance_used(rtol: float | None, atol: float | None, exact: bool) -> str:
    if exact:
        return "exact: the recorded numbers must be the same"
    default = "torch.testing's for each dtype"
    if rtol is None and atol is None:
        return default
    parts = ("rtol", rtol), ("atol", atol)
    return ", ".join(f"{name} {default if value is None else number(value)}" for name, value in parts)


def render(comparison: Comparison, console: Console, a: str, b: str, tolerance: str, most: int) -> None:
    """Write what a person wants to know first, first.

    Args:
        a, b: The sides as they were named.
        most: Pairs and unpaired names that are listed.
    """
    from rich.text import Text

    def say(line: str, style: str = "") -> None:
        console.print(Text(line, style=style), soft_wrap=not console.is_terminal)

    say(f"A          {text(a)}")
    say(f"B          {text(b)}")
    say(f"tolerance  {tolerance}")
    for side, names in (("A", comparison.only_a), ("B", comparison.only_b)):
        if names:
            more = f" and {len(names) - most} more" if len(names) > most else ""
            say(f"only in {side}  {'; '.join(text(name) for name in names[:most])}{more}", "yellow")
    say("")
    shown = comparison.earliest
    if shown is None:
        say("Nothing to compare: the sides have no cell, trial and rank in common.", "bold red")
        say("Name one of each, as PATH:CELL:TRIAL@RANK; two cells, trials or ranks compare whatever their names.")
        return
    if len(comparison.pairs) > 1:
        if comparison.all_matched:
            say(f"All {sum(pair.counts.matched for pair in comparison.pairs)} records match.", "bold green")
            say("Equal statistics are no proof of equal tensors.")
            say("")
        console.print(_pairs(comparison.pairs, most))
        if comparison.all_matched:
            return
        say("")
        say(f"{_name(shown)}:", "bold")
    _verdict(shown, say)
    if shown.first is not None:
        _divergence("First difference", shown.first, console)
    if shown.first_bad is not None and (shown.first is None or shown.first_bad.place != shown.first.place):
        _divergence("First bad on one side alone", shown.first_bad, console)
    if shown.by_tensor:
        say("")
        say(
            _listed("Tensors that do not match, from where that begins", len(shown.by_tensor), shown.num_tensors),
            "bold",
        )
        console.print(_by_tensor(shown.by_tensor))
        say("")
        say(_listed("Step by step", len(shown.by_step), shown.num_steps), "bold")
        console.print(_by_step(shown.by_step))


def _verdict(shown: Compared, say: Callable[..., None]) -> None:
    counts, steps = shown.counts, shown.steps
    if counts.all_matched:
        say(f"All {counts.matched} records that both sides have match.", "bold green")
        say("Equal statistics are no proof of equal tensors.")
    elif counts.compared + counts.missing_in_a + counts.missing_in_b + counts.mismatched == 0:
        say("Nothing could be compared: no record is on both sides.", "bold red")
    else:
        parts = [
            f"{count} {what}"
            for count, what in (
                (counts.matched, "matched"),
                (counts.mismatched, "mismatched"),
                (counts.missing_in_a, "missing in A"),
                (counts.missing_in_b, "missing in B"),
                (counts.inconclusive, "inconclusive"),
            )
            if count
        ]
        say(f"Records: {', '.join(parts)}.", "bold red")
    for reason in shown.reasons:
        where = (
            f", no record in {reason['lacks'].upper()}" if reason["status"] == "mismatched" and reason["lacks"] else ""
        )
        side = f" in {reason['lacks'].upper()}" if reason["lacks"] and not where else ""
        say(f"  {reason['count']} {reason['status']}{side}: {reason['reason']}{where}")
    say(f"Steps recorded: {steps.a} in A, {steps.b} in B, {steps.both} in both; both began {steps.begun}.")
    if steps.thin:
        say("That is little to go by. Run both with NANLOG_SAMPLE_EVERY=1, which records every step.", "yellow")


def _divergence(title: str, found: Divergence, console: Console) -> None:
    from rich.text import Text

    place = found.place
    why = "" if place["reason"] == BAD_ALONE else f" ({place['reason']})"
    console.print(Text())
    line = f"{title}: step {place['training_step']}, {read_at(place)}{why}"
    console.print(Text(line, style="bold"), soft_wrap=not console.is_terminal)
    table = columns.table("", "A", "B", "rel. diff", folded=("",))
    for before in found.before:
        _row(table, f"abs max, step {before['training_step']}", before["a"], before["b"], "finite_abs_max", "dim")
    a, b = found.a, found.b
    for name, title in COUNTS:
        if (a or {}).get(name) or (b or {}).get(name):
            table.add_row(title, *(_count(side, name) for side in (a, b)), "")
    for name, title in _NUMBERS:
        if (a or {}).get(name) is not None or (b or {}).get(name) is not None:
            _row(table, title, a, b, name)
    for name in ("dtype", "shape"):
        if a and b and a[name] != b[name]:
            table.add_row(name, text(a[name]), text(b[name]), "")
    console.print(table)
    for side, numbers in (("A", a), ("B", b)):
        if numbers is None:
            said = f"{side} went through this step without a record of it, so it was not bad there."
            console.print(Text(said), soft_wrap=not console.is_terminal)


def _row(table: Table, title: str, a: Fields | None, b: Fields | None, name: str, style: str = "") -> None:
    left, right = ((side or {}).get(name) for side in (a, b))
    apart = ""
    if left is not None and right is not None:
        larger = max(abs(left), abs(right))
        apart = number(abs(left / larger - right / larger)) if larger else "0"
    table.add_row(title, _exactly(left), _exactly(right), apart, style=style)


def _exactly(value: float | None) -> str:
    """Nine digits, which tell any two numbers of float32 apart."""
    return "-" if value is None else f"{value:.9g}"


def _count(side: Fields | None, name: str) -> str:
    return "-" if side is None else str(side[name])


def _pairs(pairs: Sequence[Compared], most: int) -> RenderableType:
    rows = [
        columns.ComparedRow(_name(pair), _first_step(pair), _style(pair.counts), pair.counts.all_matched)
        for pair in pairs
    ]
    counts = {
        "matched": [pair.counts.matched for pair in pairs],
        "differ": [pair.counts.mismatched for pair in pairs],
        "missing": [pair.counts.missing_in_a + pair.counts.missing_in_b for pair in pairs],
        "inconclusive": [pair.counts.inconclusive for pair in pairs],
    }
    return columns.compared(rows, counts, most)


def _first_step(pair: Compared) -> str:
    return "-" if pair.first is None else str(pair.first.place["training_step"])


def _name(pair: Compared) -> str:
    a, b = pair.pair.a.name, pair.pair.b.name
    return text(a if a == b else f"{a} / {b}")


def _style(counts: Counts) -> str:
    return "green" if counts.all_matched else "red" if counts.compared or counts.mismatched else "yellow"


def _by_tensor(rows: Sequence[Fields]) -> RenderableType:
    table = columns.table("step", "differ", "rel. diff", "tensor", folded=("tensor",))
    for row in rows:
        notes = [f"{row[f'missing_in_{side}']} missing in {side.upper()}" for side in "ab" if row[f"missing_in_{side}"]]
        notes += [f"{row['inconclusive']} inconclusive"] if row["inconclusive"] else []
        differ = f"{row['mismatched']}/{row['compared']}"
        told = f" ({', '.join(notes)})" if notes else ""
        table.add_row(str(row["training_step"]), differ, number(row["deviation"]), read_at(row) + told)
    return table


def _by_step(rows: Sequence[Fields]) -> RenderableType:
    missing = [row["missing_in_a"] + row["missing_in_b"] for row in rows]
    unclear = [row["inconclusive"] for row in rows]
    # A column for what there is: the terminal may be narrow.
    counted = [(title, counts) for title, counts in (("missing", missing), ("inconclusive", unclear)) if any(counts)]
    table = columns.table("step", "differ", *(title for title, _ in counted), "rel. diff")
    for number_of_row, row in enumerate(rows):
        step = f"{row['training_step']}{' eval' if row['evaluation'] else ''}"
        counts = [of_rows[number_of_row] for _, of_rows in counted]
        style = "" if row["mismatched"] or any(counts) else "dim"
        differ = f"{row['mismatched']}/{row['compared']}"
        table.add_row(step, differ, *map(str, counts), number(row["deviation"]), style=style)
    return table


def _listed(title: str, shown: int, total: int) -> str:
    return title if shown == total else f"{title} ({shown} of {total}; --most)"
