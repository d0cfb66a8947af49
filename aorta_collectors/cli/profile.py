"""`aorta-collectors profile PATH`: where the time of a run went, as the numerics collector has seen it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from aorta_collectors.analysis.captures import NUMERICS, Trial
from aorta_collectors.analysis.numerics.tables import Lines
from aorta_collectors.analysis.profile import Profile, profile_of
from aorta_collectors.analysis.profile_asserted import Asserted, Wanted, asserted, wanted_p99, wanted_throughput
from aorta_collectors.analysis.search import captures_below
from aorta_collectors.cli import profile_views as views
from aorta_collectors.cli.output import Output
from aorta_collectors.cli.progress import Bar
from aorta_collectors.cli.reading import output_options, selecting, tell_problems
from aorta_collectors.errors import ArtifactError
from aorta_collectors.printable import printable

_NOT_HELD = 3


def _bound(parsed: Callable[[str], Wanted]) -> Callable[..., Wanted | None]:
    def callback(context: click.Context, option: click.Parameter, value: str | None) -> Wanted | None:
        try:
            return None if value is None else parsed(value)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    return callback


def _factor(context: click.Context, option: click.Parameter, value: str) -> float:
    try:
        number = float(value.removesuffix("x"))
    except ValueError:
        number = 0.0
    if not 1 <= number < float("inf"):
        raise click.BadParameter(f"{value!r} is no factor of 1 or more; write 2 or 2x")
    return number


@click.command()
@click.argument("path", type=click.Path(exists=True, path_type=Path))
@click.option("--granular", is_flag=True, help="A roofline of each brick: intensity, what is reached and allowed.")
@click.option(
    "--format",
    "format_",
    type=click.Choice(["table", "flamegraph", "speedscope", "folded"]),
    default="table",
    show_default=True,
    help="flamegraph: an SVG; speedscope: for speedscope.app; folded: stacks for flamegraph.pl.",
)
@click.option("--focus", multiple=True, metavar="WORD", help="Only bricks with this in path or class (repeatable).")
@click.option("--energy", is_flag=True, help="Joules and watts, and what they come to a step.")
@click.option("--baseline", metavar="OTHER", help="Compare with PATH[:CELL[:TRIAL]][@RANK], with a grade from A to F.")
@click.option("--detect-naive", is_flag=True, help="Bricks far from what the roofline allows, and what would help.")
@click.option("--threshold", default="2", callback=_factor, show_default=True, help="How far that is: 2, or 2x.")
@click.option(
    "--assert-throughput",
    "throughput",
    callback=_bound(wanted_throughput),
    help="At least so much: 1250tokens/s, 30samples/s, 2steps/s; a number is tokens/s where known, else samples/s.",
)
@click.option("--assert-p99", "p99", callback=_bound(wanted_p99), help="At most so long a step, such as 50ms.")
@click.option("--most", type=click.IntRange(min=1), default=25, show_default=True, help="Bricks that are listed.")
@click.option("--all", "every", is_flag=True, help="List all bricks, however many there are.")
@selecting
@output_options
def profile(
    path: Path,
    granular: bool,
    format_: str,
    focus: tuple[str, ...],
    energy: bool,
    baseline: str | None,
    detect_naive: bool,
    threshold: float,
    throughput: Wanted | None,
    p99: Wanted | None,
    most: int,
    every: bool,
    cell: tuple[str, ...],
    trial: tuple[str, ...],
    rank: tuple[int, ...],
    as_json: bool,
    output: Path | None,
) -> None:
    """Show where the time of a run went: steps, phases, and modules ("bricks"), as numerics has timed them.

    PATH is a run directory, a trial's record or directory, or what NUMERICS_DIR named. Of several trials each has a
    line, and the first one is shown as a whole. Bricks take `profile: deferred` or `immediate`; without, the named
    steps are shown. Of several ranks, sums and means are of all, percentiles are those of the slowest.

    --assert-throughput and --assert-p99 are for CI: they hold for each trial, or the exit code is 3 and stderr has the
    numbers. Nothing else is printed then, unless another view or --json is asked for.

    --json has trials, each with phases, bricks, escalated, collectives, ranks, energy and gaps. Times end in _us or
    _ms, parts of a whole are from 0 to 1, and what is not known is null.

    Example: aorta-collectors profile triage_results/NAN-17 --granular --focus attention

    Example: aorta-collectors profile numerics_out --format flamegraph -o profile.svg

    Exit codes: 0; 1 if PATH, or what is asserted, cannot be read; 3 where an assertion does not hold.
    """
    if as_json and format_ != "table":
        raise click.UsageError(f"--json and --format {format_} exclude each other")
    view = _view(granular, format_, energy, baseline, threshold if detect_naive else None)
    bounds = [bound for bound in (throughput, p99) if bound is not None]
    captures = captures_below(path, NUMERICS).only(cell, trial, rank)
    tell_problems(captures)
    if not captures.captured:
        raise ArtifactError(f"numerics left nothing in {path}; `aorta-collectors verify` says why")
    with Output(output) as out, Bar("reading lines") as bar, Lines(bar) as lines:
        found = [(each, profile_of(lines, each)) for each in captures.captured]
        held = asserted([of_trial for _, of_trial in found], bounds)
        if view is not None or as_json or not bounds:
            asked = views.Asked(_in_focus(found, focus), lines, out, as_json, None if every else most, focus, path)
            (view or views.table)(asked)
    _tell(held)


def _view(
    granular: bool, format_: str, energy: bool, baseline: str | None, threshold: float | None
) -> views.View | None:
    """The one that is asked for; None where none is. Raises UsageError for several."""
    asked: list[views.View] = [views.granular] if granular else []
    asked += [views.energy] if energy else []
    asked += [views.baseline(baseline)] if baseline is not None else []
    asked += [views.naive(threshold)] if threshold is not None else []
    asked += [views.pictures(format_)] if format_ != "table" else []
    if len(asked) > 1:
        raise click.UsageError("--granular, --format, --energy, --baseline and --detect-naive exclude one another")
    return asked[0] if asked else None


def _in_focus(found: Sequence[tuple[Trial, Profile]], words: Sequence[str]) -> list[tuple[Trial, Profile]]:
    """Those with bricks that are wanted. Raises ArtifactError where none has any."""
    kept: list[tuple[Trial, Profile]] = []
    failure: ArtifactError | None = None
    for trial, of_trial in found:
        try:
            kept.append((trial, of_trial.on(words)))
        except ArtifactError as error:
            failure = error
    if failure is not None and not kept:
        raise failure
    return kept


def _tell(held: Sequence[Asserted]) -> None:
    failed = [each for each in held if not each.holds]
    for each in failed:
        than = "more than the" if each.what == "p99_ms" else "less than the"
        numbers = f"{each.what} is {each.found:.6g}, {than} {each.bound:.6g} asserted"
        click.echo(f"{printable(each.label)}: {numbers}", err=True)
    if failed:
        sys.exit(_NOT_HELD)
