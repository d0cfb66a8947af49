"""A profile on a terminal: what a step takes, which bricks take it, and what to know of the numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from aorta_collectors.analysis.captures import NONE, trial_index
from aorta_collectors.analysis.numerics.bricks import Brick
from aorta_collectors.analysis.numerics.groups import groups_of
from aorta_collectors.analysis.numerics.phases import STEP
from aorta_collectors.analysis.profile import Profile
from aorta_collectors.report import columns
from aorta_collectors.report.profile_notes import notes
from aorta_collectors.report.profile_words import amount, counted, ms, passed, percent, ratio, us, width_of
from aorta_collectors.report.wording import number, text

if TYPE_CHECKING:
    from rich.console import Console

_TRIALS = 20
_GROUPS = 12
_WIDE = 100


def render(profiles: Sequence[Profile], console: Console, most: int | None) -> None:
    """Write all trials in a table where there are several, and the first one as a whole.

    Args:
        most: Bricks that are listed; None for all.
    """
    from rich.text import Text

    if len(profiles) > 1:
        _trials(profiles, console)
        console.print()
    profile = profiles[0]
    heading(profile, console)
    console.print()
    if profile.phases:
        _phases(profile, console)
        console.print()
    if profile.bricks:
        _bricks(profile, console, most)
        if most is not None and len(profile.bricks) > most:
            console.print()
            _groups(profile, console)
    else:
        _named_steps(profile, console)
    notes(profile, console)
    if len(profiles) > 1:
        console.print()
        console.print(Text("--cell and --trial show another trial", style="dim"))


def heading(profile: Profile, console: Console) -> None:
    """Which trial, on what, and what a step of it comes to."""
    from rich.text import Text

    config, ranks = profile.config, profile.ranks
    several = 0 < profile.evaluations < profile.steps
    evaluated = f" ({profile.evaluations} without gradients)" if several else ""
    console.print(Text(f"{text(profile.label)}: {counted(profile.steps, 'step')}{evaluated}", style="bold"))
    where = text(", ".join(profile.devices)) or "-"
    machine = f" ({text(profile.roofline.device)})" if profile.roofline is not None else ""
    many = f", {counted(len(ranks), 'rank')}" if len(ranks) > 1 else ""
    facts = [("device", f"{where}{machine}{many}")]
    facts.append(("options", f"profile: {profile.profiled}, trace: {text(config.get('trace', '-'))}"))
    done = profile.throughput
    rates = [(done.tokens_per_s, "tokens/s"), (done.samples_per_s, "samples/s"), (done.steps_per_s, "steps/s")]
    said = [f"{number(float(f'{rate:.4g}'))} {unit}" for rate, unit in rates if rate is not None]
    if done.mfu is not None:
        said.append(f"MFU {percent(done.mfu)}")
    if said:
        facts.append(("throughput", ", ".join(said)))
    if done.last_loss is not None:
        best = f", best {number(done.best_loss)} in step {done.best_loss_step}" if done.best_loss is not None else ""
        last = done.last_loss if isinstance(done.last_loss, str) else number(done.last_loss)
        facts.append(("loss", f"{text(last)}{best}"))
    if profile.roofline is not None:
        found = profile.roofline
        peaks = [f"{amount(peak, 'FLOP/s')} {text(dtype)}" for dtype, peak in found.flops_per_s.items()]
        rest = f"{amount(found.bytes_per_s, 'B/s')}, {us(found.launch_us)} us a launch"
        facts.append(("roofline", ", ".join([*peaks, rest])))
    if done.memory_peak_mb is not None:
        facts.append(("memory", f"{number(done.memory_peak_mb)} MB at most"))
    if profile.energy.joules is not None:
        facts.append(("energy", f"{number(profile.energy.joules)} J (--energy)"))
    if profile.overhead is not None:
        facts.append(("overhead", f"{percent(profile.overhead)} of the steps' time is observing"))
    width = max(len(name) for name, _ in facts)
    for name, value in facts:
        console.print(Text(f"{name.ljust(width)}  {value}"), soft_wrap=not console.is_terminal)


def _trials(profiles: Sequence[Profile], console: Console) -> None:
    from rich.text import Text

    runs = len({profile.run for profile in profiles}) > 1
    headings = (*(("run",) if runs else ()), "cell", "trial", "steps", "p50 ms", "p99 ms", "tokens/s", "MFU", "longest")
    listed = columns.table(*headings, left=("run", "cell", "trial", "longest"), folded=("cell", "longest"))
    for profile in profiles[:_TRIALS]:
        step, done = profile.phase(STEP), profile.throughput
        longest = next(iter(profile.bricks), None)
        listed.add_row(
            *((Text(text(profile.run)),) if runs else ()),
            Text(text(profile.cell)),
            Text(text("-" if profile.trial == NONE else trial_index(profile.trial))),
            str(profile.steps),
            ms(step.p50_ms if step else None),
            ms(step.p99_ms if step else None),
            amount(done.tokens_per_s),
            percent(done.mfu),
            Text("-" if longest is None else f"{text(longest.layer)} {percent(longest.share)}"),
        )
    console.print(listed)
    if len(profiles) > _TRIALS:
        console.print(Text(f"... {len(profiles) - _TRIALS} more (--json has all)", style="dim"))


def _phases(profile: Profile, console: Console) -> None:
    listed = columns.table("phase", "p50 ms", "p95 ms", "p99 ms", "of step", left=("phase",))
    for phase in profile.phases:
        share = percent(phase.share) if phase.name != STEP else ""
        cells = [ms(phase.p50_ms), ms(phase.p95_ms), ms(phase.p99_ms), share]
        listed.add_row(text(phase.name), *cells, style="bold" if phase.name == STEP else None)
    console.print(listed)


#: A brick's columns: heading, what stands there, and from which width of the terminal on.
_COLUMNS: tuple[tuple[str, Callable[[Brick], str], int], ...] = (
    ("pass", lambda brick: passed(brick.direction), 0),
    ("self ms", lambda brick: ms(brick.self_ms_per_step), 0),
    ("of step", lambda brick: percent(brick.share), 0),
    ("calls", lambda brick: "-" if brick.per_step is None else f"{brick.per_step:.3g}", 70),
    ("mean us", lambda brick: us(brick.mean_us), 60),
    ("p99 us", lambda brick: us(brick.p99_us), 80),
    ("CV", lambda brick: ratio(brick.cv), 80),
    ("effic.", lambda brick: percent(brick.efficiency), 50),
    ("bound", lambda brick: brick.bound or "-", 60),
    ("looks", lambda brick: str(brick.escalations or ""), 90),
)


def _bricks(profile: Profile, console: Console, most: int | None) -> None:
    from rich.text import Text

    bricks = profile.bricks if most is None else profile.bricks[:most]
    width = width_of(console)
    shown = [column for column in _COLUMNS if width >= column[2] and any(column[1](each) not in "-" for each in bricks)]
    extra = _extra(profile, width)
    headings = ["brick", *(["class"] if width >= _WIDE else []), *(name for name, _, _ in shown)]
    left = ("brick", "class", "pass", "bound", "slowest rank")
    listed = columns.table(*headings, *(name for name, _ in extra), left=left, folded=("brick",))
    dots = "..." if columns.ascii_only(console) else "\u2026"
    room = max(12, width - 80) if width < _WIDE else 200
    thresholds = _thresholds(profile)
    for brick in bricks:
        kind = [Text(columns.tail(brick.module_type, 24, dots))] if width >= _WIDE else []
        cells = [Text(cell(brick), style=_mark(name, brick, thresholds)) for name, cell, _ in shown]
        name = Text(columns.tail(brick.layer, room, dots))
        listed.add_row(name, *kind, *cells, *(Text(cell(brick)) for _, cell in extra))
    console.print(listed)
    rest = profile.bricks[len(bricks) :]
    if rest:
        part = sum(brick.share or 0.0 for brick in rest)
        console.print(Text(f"... {len(rest)} more, {percent(part)} together (--most N, --all)", style="dim"))
    of_all = f" of {profile.bricks_timed}" if len(profile.bricks) < profile.bricks_timed else ""
    total = sum(brick.share or 0.0 for brick in profile.bricks)
    console.print(Text(f"{len(profile.bricks)}{of_all} bricks, {percent(total)} of the step; {_times(profile)}", "dim"))


def _groups(profile: Profile, console: Console) -> None:
    from rich.text import Text

    headings = ("repeated layers together", "pass", "bricks", "self ms", "of step", "effic.")
    listed = columns.table(*headings, left=("pass",), folded=headings[:1])
    for group in groups_of(profile.bricks)[:_GROUPS]:
        cells = (str(group.count), ms(group.self_ms_per_step), percent(group.share), percent(group.efficiency))
        listed.add_row(Text(text(group.pattern)), passed(group.direction), *cells)
    console.print(listed)


def _extra(profile: Profile, width: int) -> Sequence[tuple[str, Callable[[Brick], str]]]:
    if len(profile.ranks) < 2 or width < _WIDE:
        return ()
    return (
        ("slowest rank", lambda brick: text(brick.slowest) if _differs(brick) else ""),
        ("x median", lambda brick: ratio(brick.spread) if _differs(brick) else ""),
    )


def _differs(brick: Brick) -> bool:
    """Whether a rank stands out."""
    return brick.spread is not None and brick.spread >= 1.01


def _times(profile: Profile) -> str:
    if profile.profiled == "immediate":
        return "times are the device's, waited for at each brick"
    on_host = all(device == "cpu" for device in profile.devices)
    return "times are those of the host" + ("" if on_host else ", the cost of launching (profile: immediate waits)")


def _thresholds(profile: Profile) -> tuple[float, float]:
    cv, efficiency = profile.config.get("cv_threshold"), profile.config.get("efficiency_threshold")
    numbers = [value if isinstance(value, int | float) else 0.0 for value in (cv, efficiency)]
    return numbers[0] or float("inf"), numbers[1]


def _mark(name: str, brick: Brick, thresholds: tuple[float, float]) -> str:
    if name == "CV" and brick.cv is not None and brick.cv > thresholds[0]:
        return "yellow"
    return "yellow" if name == "effic." and brick.efficiency is not None and brick.efficiency < thresholds[1] else ""


def _named_steps(profile: Profile, console: Console) -> None:
    """What there is without bricks, and how to get them."""
    from rich.text import Text

    if profile.named_steps:
        listed = columns.table("step", "pass", "a step", "p50 us", "p95 us", "p99 us", "of step", left=("step", "pass"))
        for step in profile.named_steps:
            per = "-" if step.per_step is None else f"{step.per_step:.3g}"
            cells = (per, us(step.p50_us), us(step.p95_us), us(step.p99_us), percent(step.share))
            listed.add_row(Text(text(step.name)), passed(step.direction), *cells)
        console.print(listed)
    if profile.profiled == "off":
        said = (
            "no bricks: modules are timed with `profile: deferred` or `profile: immediate` (alone: --profile deferred)"
        )
    else:
        said = "no bricks: no module's call was timed"
    console.print(Text(said, style="yellow"))
