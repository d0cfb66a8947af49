"""How tensors, their elements and their differences are written wherever a person reads of a comparison."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from aorta_collectors.analysis.bundles.difference import Difference, Number
from aorta_collectors.analysis.bundles.judge import INCONCLUSIVE, MATCHED, MISMATCHED, MISSING
from aorta_collectors.analysis.bundles.observation import BACKWARD, FORWARD, UPDATE, USER, Observation
from aorta_collectors.analysis.bundles.pair import Counts
from aorta_collectors.report.wording import number, text

if TYPE_CHECKING:
    from rich.console import Console

#: Of a row, by its state.
STYLES = {MATCHED: "dim", MISMATCHED: "red", MISSING: "yellow", INCONCLUSIVE: "yellow"}
#: Parts of a step, in words.
DIRECTIONS = {
    FORWARD: "the forward pass",
    BACKWARD: "the backward pass",
    UPDATE: "the optimizer's update",
    USER: "what the program observes itself",
}
_FAR = 2**53


class Say(Protocol):
    """Writes a line."""

    def __call__(self, line: str = "", style: str = "") -> None: ...


def say_to(console: Console) -> Say:
    """Lines wrap on a terminal, and stay whole elsewhere."""
    from rich.text import Text

    def say(line: str = "", style: str = "") -> None:
        console.print(Text(line, style=style), soft_wrap=not console.is_terminal)

    return say


def exactly(value: Number | None, other: Number | None = None) -> str:
    """Nine digits, which tell any two numbers of float32 apart; all of them where nine do not tell it from `other`."""
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    short = f"{value:.9g}"
    is_float = isinstance(value, float) and isinstance(other, float)
    return repr(value) if is_float and value != other and short == f"{other:.9g}" else short


def ulps(steps: int | None) -> str:
    """Steps between neighbouring numbers of the dtype."""
    return "-" if steps is None else str(steps) if steps < _FAR else f"{steps:.3g}"


def part(count: int, of: int) -> str:
    """Such as "3 of 20 elements (15 %)"."""
    return f"{count} of {of} elements ({number(100 * count / of)} %)" if of else "0 elements"


def form(of: Observation) -> str:
    """Such as "float32 [4, 5] on cpu"."""
    return text(f"{of.dtype} {of.shape} on {of.device}{', compiled' if of.compiled else ''}")


def place(of: Observation) -> str:
    """Such as "after_forward:layers.2.output, invocation 1 (step 2)"."""
    replay = "" if of.replay is None else f", replay {of.replay} of graph {of.graph}"
    return f"{text(of.name)}, invocation {of.invocation} (step {of.step}{replay})"


def state_counts(counts: dict[str, int]) -> str:
    """Such as "12 matched, 1 inconclusive"."""
    return ", ".join(f"{count} {state}" for state, count in counts.items() if count)


def below_atol(counts: Counts) -> str:
    """What of that which matched says nothing."""
    return (
        f"{counts.below_atol} of the {counts.matched} match only since no element of theirs exceeds half the "
        "absolute tolerance: with another sign they would match as well."
    )


def apart(found: Difference | None) -> tuple[str, str, str]:
    """How far apart the elements at the worst place are: absolutely, relatively, and in steps of the dtype."""
    if found is None:
        return "-", "-", "-"
    # Where nothing differs there is no such place, and all are as far apart: not at all.
    there = found.largest if found.index is None else found.there
    return number(there.absolute), number(there.relative), ulps(there.ulps)
