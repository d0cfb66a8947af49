"""One line of the table: what was measured, the bar it has to meet, and the numbers behind it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from benchmarks.estimate import Estimate


class Bar(NamedTuple):
    """A limit, from above or from below."""

    limit: float
    at_most: bool = True

    def met(self, value: float) -> bool:
        return value <= self.limit if self.at_most else value >= self.limit

    def __str__(self) -> str:
        return f"{'<=' if self.at_most else '>='} {self.limit:g}"


@dataclass(frozen=True)
class Row:
    """What one line of the table says.

    Attributes:
        key: What --only calls it.
        bar: None where a number is for information.
        unit: Stands behind the value; empty for a ratio.
        numbers: What the value was computed from, by name, with the unit in the name.
        note: What else the reader has to know; empty mostly.
    """

    key: str
    what: str
    value: Estimate
    bar: Bar | None
    numbers: dict[str, float | str]
    unit: str = ""
    note: str = ""

    @property
    def met(self) -> bool | None:
        return None if self.bar is None else self.bar.met(self.value.value)

    def text(self) -> str:
        """Three lines or so: the verdict, the interval, the numbers."""
        verdict = {None: "", True: "met", False: "MISSED"}[self.met]
        bar = "" if self.bar is None else str(self.bar)
        first = f"{self.what:74.74} {_short(self.value.value) + self.unit:>10}  {bar:>8}  {verdict}"
        behind = ", ".join(
            f"{name} {number if isinstance(number, str) else _short(number)}" for name, number in self.numbers.items()
        )
        interval = f"95%: {_short(self.value.low)} to {_short(self.value.high)}"
        lines = [first.rstrip(), f"    {self.key}: {'; '.join(filter(None, [interval, behind]))}"]
        if self.note:
            lines.append(f"    {self.note}")
        return "\n".join(lines)

    def plain(self) -> dict[str, Any]:
        """Plain JSON."""
        return {
            **asdict(self),
            "value": self.value.value,
            "interval": [self.value.low, self.value.high],
            "bar": None if self.bar is None else str(self.bar),
            "met": self.met,
        }


def _short(number: float) -> str:
    return f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.4g}"
