"""Energy on a terminal: joules and watts, what they come to a step, token and sample, or why they are not known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aorta_collectors.analysis.profile import Profile
from aorta_collectors.report.profile_words import amount, duration
from aorta_collectors.report.wording import text

if TYPE_CHECKING:
    from rich.console import Console


def render(profile: Profile, console: Console) -> None:
    """Write what was read, and of each source that was not read why."""
    from rich.text import Text

    def say(line: str, style: str = "") -> None:
        console.print(Text(line, style=style), soft_wrap=not console.is_terminal)

    found = profile.energy
    say(f"{text(profile.label)}: energy", "bold")
    if found.joules is None:
        say("no energy was readable", "yellow")
    else:
        facts = [("energy", amount(found.joules, "J")), ("power", amount(found.watts, "W"))]
        for what, joules in (
            ("step", found.joules_per_step),
            ("token", found.joules_per_token),
            ("sample", found.joules_per_sample),
        ):
            facts.append((f"a {what}", "-" if joules is None else f"{joules:.3g} J"))
        for name, value in facts:
            say(f"{name.ljust(8)}  {value}")
        for meter in found.meters:
            over = "" if meter.seconds is None else f" over {duration(meter.seconds * 1e6)}"
            say(
                f"{amount(meter.joules, 'J')}{over} by {text(meter.source)} of {text(meter.of)}, whoever used it", "dim"
            )
    for reason, ranks in found.unavailable:
        many = f" ({ranks} ranks)" if ranks > 1 else ""
        say(f"not read: {text(reason)}{many}", "dim")
