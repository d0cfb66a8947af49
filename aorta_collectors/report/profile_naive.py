"""Bricks far from what the roofline allows, with what was seen of each and what would help."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from aorta_collectors.analysis.profile import Profile
from aorta_collectors.analysis.profile_naive import Naive, NaiveBricks
from aorta_collectors.report.profile import heading
from aorta_collectors.report.profile_words import duration, ms, passed, percent, ratio
from aorta_collectors.report.wording import number, text

if TYPE_CHECKING:
    from rich.console import Console

#: What would save less of a step than this is counted, and not listed.
_LEAST = 0.005
_BOUNDS = {
    "compute": "bound by arithmetic",
    "memory": "bound by memory",
    "launch": "bound by launching",
    "host": "bound by the host: its time is not in operations",
}


def render(profile: Profile, found: NaiveBricks, console: Console, most: int | None) -> None:
    """Write each with its evidence.

    Args:
        most: Entries that are listed; None for all.
    """
    from rich.text import Text

    def say(line: str, style: str = "") -> None:
        console.print(Text(line, style=style), soft_wrap=not console.is_terminal)

    heading(profile, console)
    say("")
    if not profile.bricks:
        say("no bricks: modules are timed with `profile: deferred` or `profile: immediate`", "yellow")
        return
    beyond = f"more than {number(found.threshold)} times what the roofline allows"
    count = sum(len(each.layers) for each in found.found)
    if found.unknown == len(profile.bricks):
        say("Of no brick it is known what the roofline allows: operations were not counted.", "yellow")
        return
    if not count:
        say(f"No brick takes {beyond}.", "green")
    else:
        say(f"{count} of {len(profile.bricks)} bricks take {beyond}:", "bold")
    worth = [each for each in found.found if most is None or each.saved_share is None or each.saved_share >= _LEAST]
    for each in worth[:most]:
        say("")
        _entry(each, say)
    rest = len(found.found) - len(worth[:most])
    if rest:
        say("")
        say(f"... {rest} more, which would save less (--most N, --all)", "dim")
    if found.precision is not None:
        narrow = found.precision
        saved = "" if narrow.saved_ms is None else f", up to {ms(narrow.saved_ms)} ms of a step"
        share = "" if narrow.saved_share is None else f" ({percent(narrow.saved_share)})"
        say("")
        say(f"precision: {narrow.bricks} brick(s) multiply in float32{saved}{share}", "bold yellow")
        say(f"  this machine multiplies {text(narrow.dtype)} {ratio(narrow.times)} times as fast")
        say(f"    {text(narrow.do)}", "green")
    if found.unknown:
        say("")
        said = "1 brick has" if found.unknown == 1 else f"{found.unknown} bricks have"
        say(f"{said} operations that were not counted: what the roofline allows them is not known", "dim")


def _entry(each: Naive, say: Callable[..., None]) -> None:
    several = f", {len(each.layers)} bricks" if len(each.layers) > 1 else ""
    times = "no operations" if each.times is None else f"{ratio(each.times)} times what the roofline allows"
    say(f"{text(each.pattern)} {passed(each.direction)} ({text(each.module_type)}{several}): {times}", "bold yellow")
    saved = "" if each.saved_ms is None else f"; up to {ms(each.saved_ms)} ms of a step ({percent(each.saved_share)})"
    say(f"  {duration(each.own_us)} a call, {duration(each.allowed_us)} allowed{saved}")
    if each.bound is not None:
        say(f"  {_BOUNDS[each.bound]}")
    for advice in each.advice:
        say(f"  {advice.rule}: {text(advice.saw)}")
        say(f"    {advice.do}", "green")
