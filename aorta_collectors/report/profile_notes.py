"""What stands below a profile's tables: closer looks, dead units, collectives, ranks, and what is not shown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from aorta_collectors.analysis.numerics.escalations import Escalated
from aorta_collectors.analysis.numerics.ranks import OfRank
from aorta_collectors.analysis.profile import Profile
from aorta_collectors.report import columns
from aorta_collectors.report.profile_words import amount, counted, duration, ms, passed, percent, us, width_of
from aorta_collectors.report.wording import number, text

if TYPE_CHECKING:
    from rich.console import Console

_LISTED = 5
_KERNELS = 3
_GAPS = 12
_RANKS = 8
_WIDE = 76
_MEASURES = {"unstable": "CV", "inefficient": "efficiency"}


def notes(profile: Profile, console: Console) -> None:
    """Write those that there are, each under a heading."""
    from rich.text import Text

    def section(title: str, lines: Iterable[str], style: str = "") -> None:
        told = list(lines)
        if told:
            console.print()
            console.print(Text(title, style="bold"))
            for line in told:
                console.print(Text(f"  {line}", style=style), soft_wrap=not console.is_terminal)

    section("Closer looks", _looks(profile.escalated))
    section("Dead and saturated units", _units(profile))
    _collectives(profile, console)
    _ranks(profile, console)
    more = len(profile.gaps) - _GAPS
    gaps = [text(gap) for gap in profile.gaps[:_GAPS]] + ([f"... {more} more (--json)"] if more > 0 else [])
    section("Not shown, or to know", gaps, "yellow")


def _looks(escalated: Sequence[Escalated]) -> Iterable[str]:
    for each in escalated[:_LISTED]:
        why = ", ".join(
            f"{reason} ({_MEASURES.get(reason, reason)} {number(value)}, threshold {number(threshold)})"
            for reason, (value, threshold) in each.reasons.items()
        )
        steps = f"step {each.steps[0]}" if each.looks == 1 and each.steps else f"{each.looks} looks"
        yield f"{text(each.layer)} {passed(each.direction)}, {steps}: {text(why)}, at most {duration(each.longest_us)}"
        if each.dominant:
            rest = sorted(each.shares.items(), key=lambda share: -share[1])
            shares = ", ".join(f"{text(category)} {percent(share)}" for category, share in rest if share >= 0.005)
            source = text(", ".join(each.sources))
            yield f"  time of all threads: {shares} ({source}); largest where it ran: {text(each.dominant)}"
        kernels = [
            f"{text(kernel.name)} x{kernel.calls} {duration(max(kernel.self_us, kernel.device_us or 0.0))}"
            for kernel in each.kernels[:_KERNELS]
        ]
        if kernels:
            yield f"  kernels: {', '.join(kernels)}"
        if each.unavailable:
            yield f"  not available: {text('; '.join(each.unavailable))}"
    if len(escalated) > _LISTED:
        yield f"... {len(escalated) - _LISTED} more bricks (--json)"


def _units(profile: Profile) -> Iterable[str]:
    found = [brick for brick in profile.bricks if brick.units and (brick.dead_units or brick.saturated_units)]
    found.sort(key=lambda brick: -((brick.dead_units or 0) + (brick.saturated_units or 0)) / (brick.units or 1))
    for brick in found[:_LISTED]:
        parts = [
            f"{count} {word}"
            for count, word in ((brick.dead_units, "dead"), (brick.saturated_units, "saturated"))
            if count
        ]
        yield f"{text(brick.layer)} ({text(brick.module_type)}): {', '.join(parts)} of {brick.units} units"
    if len(found) > _LISTED:
        yield f"... {len(found) - _LISTED} more (--json)"


def _collectives(profile: Profile, console: Console) -> None:
    if not profile.collectives:
        return
    from rich.text import Text

    console.print()
    names = ["calls", "bytes", "ms a step", "rate", "least ms", "most ms"]
    shown = names if width_of(console) >= _WIDE else names[:3]
    listed = columns.table("collective", *shown, folded=("collective",))
    for each in profile.collectives[: 2 * _LISTED]:
        cells = (
            str(each.calls),
            amount(each.bytes, "B"),
            ms(None if each.per_step_us is None else each.per_step_us / 1000),
            amount(each.bytes_per_s, "B/s"),
            ms(each.least_us / 1000),
            ms(each.most_us / 1000),
        )
        name = text(f"{each.operation} ({each.source})" if each.source else each.operation)
        listed.add_row(Text(name), *cells[: len(shown)])
    console.print(listed)
    if len(profile.ranks) > 1 and shown is names:
        console.print(Text("least and most: of the rank that spent least, or most, in there altogether", style="dim"))


#: A rank's columns: heading and what stands there.
_COLUMNS: tuple[tuple[str, Callable[[OfRank], str]], ...] = (
    ("step ms", lambda rank: ms(rank.step_ms)),
    ("collective ms", lambda rank: ms(rank.collective_ms)),
    ("busy ms", lambda rank: ms(rank.busy_ms)),
    ("p99 ms", lambda rank: ms(rank.step_p99_ms)),
    ("steps", lambda rank: str(rank.steps)),
    ("memory MB", lambda rank: us(rank.memory_peak_mb)),
)


def _ranks(profile: Profile, console: Console) -> None:
    """Those that are busy longest, and how much the others wait for them."""
    from rich.text import Text

    ranks = profile.ranks
    if len(ranks) < 2:
        return
    console.print()
    shown = _COLUMNS if width_of(console) >= _WIDE else _COLUMNS[:3]
    listed = columns.table("rank", *(name for name, _ in shown), left=("rank",))
    longest = sorted(ranks, key=lambda rank: -(rank.busy_ms if rank.busy_ms is not None else rank.step_ms or 0.0))
    for rank in sorted(longest[:_RANKS], key=lambda rank: rank.rank) if len(ranks) <= _RANKS else longest[:_RANKS]:
        listed.add_row(Text(text(rank.label)), *(cell(rank) for _, cell in shown))
    console.print(listed)
    if len(ranks) > _RANKS:
        console.print(Text(f"the busiest {_RANKS} of {counted(len(ranks), 'rank')} (--json has all)", style="dim"))
    found = profile.imbalance
    if found is not None:
        said = (
            f"{text(found.slowest)} is busy longest: {ms(found.busiest_ms)} ms of a step, the median rank "
            f"{ms(found.median_busy_ms)}; the others wait {percent(found.lost)} of the step for it, "
            f"{text(found.waits_most)} most"
        )
        console.print(Text(said), soft_wrap=not console.is_terminal)
