"""A comparison of tensors in a terminal: the verdict, the first divergence in absolute values, what else differs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from aorta_collectors.analysis.bundles.difference import Difference
from aorta_collectors.analysis.bundles.judge import INCONCLUSIVE, MATCHED, MISMATCHED, MISSING
from aorta_collectors.analysis.bundles.observation import Observation
from aorta_collectors.analysis.bundles.pair import Counts, Pair
from aorta_collectors.analysis.bundles.result import (
    ByName,
    Compared,
    Divergence,
    OtherDtype,
    TensorComparison,
)
from aorta_collectors.report import columns
from aorta_collectors.report.tensors_words import (
    DIRECTIONS,
    STYLES,
    Say,
    apart,
    below_atol,
    exactly,
    form,
    part,
    place,
    say_to,
    state_counts,
    ulps,
)
from aorta_collectors.report.wording import number, text

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

_MOST = 20
_MOST_CONDITIONS = 8
# Fewer columns than these leave a name no room beside all numbers.
_WIDE = 100


def render(comparison: TensorComparison, console: Console, baseline: str, candidate: str, most: int = _MOST) -> None:
    """Write what a person wants to know first, first.

    Args:
        baseline, candidate: The sides as they were named.
        most: Rows of each table.
    """
    say = say_to(console)
    say(f"baseline   {text(baseline)}")
    say(f"candidate  {text(candidate)}")
    say(f"criterion  {comparison.criterion.describe()}")
    for side, names in (("baseline", comparison.only_baseline), ("candidate", comparison.only_candidate)):
        if names:
            more = f" and {len(names) - most} more" if len(names) > most else ""
            say(f"only in the {side}, and compared with nothing: {'; '.join(map(text, names[:most]))}{more}", "yellow")
    say()
    shown = comparison.earliest
    if shown is None:
        say("Nothing to compare: the sides have no cell, trial and rank in common.", "bold red")
        say("Name one of each, as PATH:CELL:TRIAL@RANK; two cells, trials or ranks compare whatever their names.")
        return
    if len(comparison.pairs) > 1:
        _verdict(comparison.counts, say)
        console.print(_pairs(comparison.pairs, most))
        say()
        say(f"{_label(shown)}:", "bold")
    _one(shown, console, say, most)


def _one(shown: Compared, console: Console, say: Say, most: int) -> None:
    _verdict(shown.counts, say)
    reasons = shown.reasons
    for state, reason, lacks, count in reasons[:most]:
        where = f" in the {lacks}" if lacks else ""
        say(f"  {count} {state}{where}{': ' if reason else ''}{text(reason)}")
    if len(reasons) > most:
        say(f"  and {len(reasons) - most} more reasons (--most, --json)")
    if any(state == INCONCLUSIVE and reason.startswith("digests differ") for state, reason, _, _ in reasons):
        say("Values decide what digests cannot: observe with keep: values. --bitwise compares digests alone.", "yellow")
    if shown.counts.below_atol:
        say(f"{below_atol(shown.counts)} --atol 0 or --ulp decides.", "bold yellow")
    for note in shown.notes:
        say(f"note: {text(note)}", "yellow")
    if shown.other_dtype is not None:
        _other_dtype(shown.other_dtype, say)
    furthest = shown.largest_matched
    if furthest is not None and furthest.difference is not None:
        absolute, relative, steps = apart(furthest.difference)
        ulp = f", {steps} ulp of {furthest.difference.ulp_dtype}" if furthest.difference.ulp_dtype else ""
        where = f"{place(furthest.either)}: {absolute} (relative {relative}{ulp})"
        say(f"Furthest apart, for its size, of what matched: {where}")
    first = shown.first
    for direction, each in shown.firsts.items():
        say()
        if each is first:
            say(f"First divergence, in {DIRECTIONS[direction]}: {place(each.pair.either)}", "bold red")
            _divergence(each, console, say)
        else:
            say(f"First in {DIRECTIONS[direction]}: {place(each.pair.either)}", "bold")
            _numbers(each.pair, console, say)
    if shown.by_name:
        say()
        listed = min(most, len(shown.by_name))
        more = "" if listed == len(shown.by_name) else f" ({listed} of {len(shown.by_name)}; --most)"
        say(f"Names that do not match, from where that begins{more}", "bold")
        say("Values are those of the step where they are furthest apart, at the element that is so there.", "dim")
        console.print(_by_name(shown.by_name[:most], console.width))
    _conditions(shown, say)


def _verdict(counts: Counts, say: Say) -> None:
    if not counts.total:
        say("Nothing could be compared: neither side observed anything, or nothing of such a name.", "bold red")
        return
    if counts.all_matched:
        bits = "all bit for bit" if counts.identical == counts.matched else f"{counts.identical} bit for bit"
        say(f"All {counts.matched} observations match, {bits}.", "bold green")
        return
    matched = f"{counts.matched} matched" + (f" ({counts.identical} bit for bit)" if counts.matched else "")
    parts = [
        f"{count} {what}"
        for count, what in (
            (counts.mismatched, "mismatched"),
            (counts.missing_in_baseline, "missing in the baseline"),
            (counts.missing_in_candidate, "missing in the candidate"),
            (counts.inconclusive, "inconclusive"),
        )
        if count
    ]
    say(f"{counts.total} observations: {', '.join([matched, *parts])}.", "bold red")


def _other_dtype(found: OtherDtype, say: Say) -> None:
    a, b = found.baseline, found.candidate
    more = f"; {found.count} observations have another dtype" if found.count > 1 else ""
    say(
        f"First dtype difference: {place(a)}: {text(a.dtype)} in the baseline, {text(b.dtype)} in the candidate{more}.",
        "bold yellow",
    )


def _divergence(found: Divergence, console: Console, say: Say) -> None:
    """The numbers of a divergence, absolute ones first, and what stands around it."""
    pair, of = found.pair, found.pair.either
    say(f"{text(of.module_type or 'the program')}, {of.kind.replace('_', ' of ')}: {text(pair.judgement.reason)}")
    _numbers(pair, console, say)
    before = dict(found.before_it)
    if found.is_clean:
        count = before.get(MATCHED, 0)
        say(f"All {count} observations before it matched." if count else "It is the first observation of all.")
    else:
        say(f"Before it: {state_counts(before)}. What is not known to match may differ already.", "yellow")
    if set(found.forward_of_step) == {MATCHED}:
        say(f"All {found.forward_of_step[MATCHED]} observations of its step's forward pass before it matched.")
    table = columns.table("", "step", "state", "observation", left=("", "state"), folded=("observation",))
    for each in found.before:
        table.add_row("", str(each.observation.step), each.state, _named(each.observation), style=STYLES[each.state])
    table.add_row(">", str(of.step), MISMATCHED, _named(of), style="bold red")
    for each in found.after:
        table.add_row("", str(each.observation.step), each.state, _named(each.observation), style=STYLES[each.state])
    console.print(table)


def _numbers(pair: Pair, console: Console, say: Say) -> None:
    """Absolute numbers of both sides, then what lies between them, then how many elements it concerns."""
    table = columns.table("", "baseline", "candidate", folded=("",))
    a, b, found = pair.baseline, pair.candidate, pair.difference
    assert a is not None
    assert b is not None
    if found is not None and found.index is not None:
        table.add_row(f"element {list(found.index)}", *_worst(found), style="bold")
    for title, left, right in (("min", a.min, b.min), ("max", a.max, b.max), ("mean", a.mean, b.mean)):
        table.add_row(title, exactly(left, right), exactly(right, left))
    for title, counts in (("NaN", (a.nan_count, b.nan_count)), ("Inf", (a.inf_count, b.inf_count))):
        if any(counts):
            table.add_row(title, *map(str, counts), style="red")
    if found is not None:
        _distances(table, found)
    console.print(table)
    same = a.dtype == b.dtype and a.shape == b.shape and a.device == b.device
    say(f"form  {form(a)} / {'the same' if same else form(b)}")
    if found is not None:
        unequal = f"; not equal: {found.unequal}" if found.unequal != found.outside else ""
        say(f"not within the criterion: {part(found.outside, found.numel)}{unequal}")


def _distances(table: Table, found: Difference) -> None:
    """How far apart the elements at the worst place are, and what is larger of others."""
    titles = "abs. difference", "rel. difference", f"in ulp of {found.ulp_dtype}" if found.ulp_dtype else "in ulp"
    at = "" if found.index is None else f" at {list(found.index)}"
    for title, there in zip(titles, apart(found), strict=True):
        table.add_row(f"{title}{at}", "", there)
    for title, mine, largest in zip(titles, found.there, found.largest, strict=True):
        if found.index is not None and largest is not None and (mine is None or largest > mine):
            told = ulps(largest) if isinstance(largest, int) else number(largest)
            table.add_row(f"{title}, largest elsewhere", "", told)


def _by_name(rows: Sequence[ByName], width: int) -> RenderableType:
    has = {state: any(row.counts.get(state) for row in rows) for state in (MISSING, INCONCLUSIVE)}
    titles = ["from step", "differ", *(state for state in has if has[state])]
    titles += ["baseline", "candidate"] if width >= _WIDE else []
    titles += ["abs. diff"] if width < _WIDE else ["abs. diff", "ulp"]
    table = columns.table(*titles, "name", folded=("name",))
    for row in rows:
        found = row.worst.difference if row.worst else None
        count = row.counts.get(MISMATCHED, 0)
        cells = [str(row.first.either.step), f"{count}/{sum(row.counts.values())}"]
        cells += [str(row.counts.get(state, 0)) for state in has if has[state]]
        absolute, _, steps = apart(found)
        if width >= _WIDE:
            cells += _largest(row.first) if found is None else _worst(found)
        cells += [absolute] if width < _WIDE else [absolute, steps]
        table.add_row(*cells, text(row.name), style="red" if count else "yellow")
    return table


def _worst(found: Difference) -> list[str]:
    """The elements at the worst place."""
    return [exactly(found.baseline, found.candidate), exactly(found.candidate, found.baseline)]


def _largest(pair: Pair) -> list[str]:
    """The largest magnitudes, where elements are not known."""
    return ["-" if side is None else f"max {number(side.abs_max)}" for side in (pair.baseline, pair.candidate)]


def _pairs(pairs: Sequence[Compared], most: int) -> RenderableType:
    rows = [
        columns.ComparedRow(_label(pair), _first_step(pair), _style(pair), pair.counts.all_matched) for pair in pairs
    ]
    counts = {
        "matched": [pair.counts.matched for pair in pairs],
        "differ": [pair.counts.mismatched for pair in pairs],
        "missing": [pair.counts.missing_in_baseline + pair.counts.missing_in_candidate for pair in pairs],
        "inconclusive": [pair.counts.inconclusive for pair in pairs],
    }
    return columns.compared(rows, counts, most)


def _first_step(pair: Compared) -> str:
    return "-" if pair.first is None else str(pair.first.pair.either.step)


def _style(pair: Compared) -> str:
    return "green" if pair.counts.all_matched else "red" if pair.counts.mismatched else "yellow"


def _conditions(shown: Compared, say: Say) -> None:
    if not shown.conditions:
        return
    listed = min(_MOST_CONDITIONS, len(shown.conditions))
    more = "" if listed == len(shown.conditions) else f" ({listed} of {len(shown.conditions)}; --json has all)"
    say()
    say(f"What the runs did not have in common{more}", "bold")
    for what, a, b in shown.conditions[:listed]:
        is_state = what.endswith("_state")
        sides = (
            "other numbers drawn before the first call, or not seeded alike"
            if is_state
            else f"{_short(a)} / {_short(b)}"
        )
        say(f"  {text(what)}: {sides}")


def _short(value: object) -> str:
    return text(" ".join(map(str, value)) if isinstance(value, list) else value)


def _label(pair: Compared) -> str:
    a, b = pair.baseline.label, pair.candidate.label
    return text(a if a == b else f"{a} / {b}")


def _named(of: Observation) -> str:
    return text(f"{of.name} #{of.invocation}")
