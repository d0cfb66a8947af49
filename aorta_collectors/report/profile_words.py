"""How durations, rates and parts of a whole are written in profiles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aorta_collectors.report.wording import number

if TYPE_CHECKING:
    from rich.console import Console

_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def percent(share: float | None) -> str:
    """Such as 12.3%, 0.4% and 100%; "-" for None."""
    if share is None:
        return "-"
    return f"{share * 100:.0f}%" if share >= 0.995 else f"{share * 100:.1f}%"


def amount(value: float | None, unit: str = "") -> str:
    """Three significant digits and a prefix, such as 98.2 GFLOP/s; "-" for None."""
    if value is None:
        return "-"
    value = float(f"{value:.3g}")
    size, prefix = next(((size, prefix) for size, prefix in _PREFIXES if abs(value) >= size), (1.0, ""))
    return f"{value / size:.3g} {prefix}{unit}".rstrip()


def ms(value: float | None) -> str:
    """Milliseconds as a number of four digits at most."""
    return "-" if value is None else f"{value:.3g}" if value < 100 else f"{value:.0f}"


def us(value: float | None) -> str:
    """Microseconds, likewise."""
    return ms(value)


def duration(microseconds: float | None) -> str:
    """With the unit that suits it, such as 12.3 us, 4.56 ms and 1.2 s."""
    if microseconds is None:
        return "-"
    microseconds = float(f"{microseconds:.3g}")
    size, unit = (1e6, "s") if microseconds >= 1e6 else (1e3, "ms") if microseconds >= 1e3 else (1.0, "us")
    return f"{float(f'{microseconds / size:.3g}'):g} {unit}"


def ratio(value: float | None) -> str:
    """Such as 0.42 and 1.3; "-" for None."""
    return "-" if value is None else number(round(value, 2)) if value < 100 else f"{value:.0f}"


def width_of(console: Console) -> int:
    """Columns that tables may take; in a pipe lines are as long as they are."""
    return console.width if console.is_terminal else 10_000


def passed(direction: str) -> str:
    """A direction as columns have it: fwd, bwd or nothing."""
    return {"forward": "fwd", "backward": "bwd"}.get(direction, "")


def counted(count: int, noun: str) -> str:
    """Such as "1 step" and "2 steps"."""
    return f"{count} {noun}{'' if count == 1 else 's'}"
