"""`aorta-collectors trajectory PATH LAYER...`: magnitudes over the steps, with bad values marked."""

from __future__ import annotations

import click

from aorta_collectors.analysis.trajectory import Wanted
from aorta_collectors.analysis.trajectory import trajectory as ask
from aorta_collectors.cli.reading import Reading, reading
from aorta_collectors.report.trajectory import points, render

_JSON_POINTS = 1000


def _steps(context: click.Context, option: click.Parameter, value: str | None) -> tuple[int | None, int | None]:
    first, colon, last = (value or ":").partition(":")
    try:
        low = int(first) if first else None
        high = (int(last) if last else None) if colon else low
    except ValueError:
        raise click.BadParameter(f"{value!r} is no range of steps; write 10:20, 10:, :20 or 10") from None
    if low is not None and high is not None and low > high:
        raise click.BadParameter(f"{value!r} ends before it begins")
    return low, high


@click.command()
@reading
@click.argument("layers", metavar="LAYER...", nargs=-1, required=True)
@click.option("--role", "roles", multiple=True, help="Only this channel, such as igrad (repeatable); act if left out.")
@click.option("--steps", callback=_steps, help="Only these steps, both ends included: 10:20, 10:, :20 or 10.")
@click.option("--invocation", type=click.IntRange(min=1), help="Only this call within a step; else the worst of all.")
@click.option("--series", default=8, show_default=True, type=click.IntRange(1, 35), help="Show so many at most.")
@click.option("--last", type=click.IntRange(min=1), help="Tables of the last so many steps, of each series.")
@click.option("--all", "every", is_flag=True, help="Tables of all steps, of each series.")
def trajectory(
    found: Reading,
    layers: tuple[str, ...],
    roles: tuple[str, ...],
    steps: tuple[int | None, int | None],
    invocation: int | None,
    series: int,
    last: int | None,
    every: bool,
) -> None:
    """Show how the magnitude of layers goes over the steps, as a chart and a table.

    LAYER is a layer's name, a pattern ('*.scores'), or the end of a name (scores). Of each process, what goes bad first
    comes first. The table is of the steps around the first bad one; else of the last 20. Growth is per step; bits are
    those up to the largest number of the dtype.

    --json has series, each with points (at most 1000, the worst of steps_per_point steps each) and rows (single steps,
    as in the table). What a point says is named as in records: finite_abs_max, nan_count and so on.

    Example: aorta-collectors trajectory triage_results/NAN-17 '*.scores' --cell none-none --cell fp32_scores-none
    """
    console = found.out.console()
    most = _JSON_POINTS if found.as_json else points(console.width)
    answer = ask(found.database, Wanted(layers, roles, *steps, invocation, series, most, last, every))
    if found.as_json:
        found.out.json(answer.as_json())
    else:
        render(answer, console, every or last is not None)
