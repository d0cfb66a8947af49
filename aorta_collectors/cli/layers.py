"""`aorta-collectors layers PATH`: the layers in execution order at one step."""

from __future__ import annotations

import click

from aorta_collectors.analysis.layers import layers as ask
from aorta_collectors.cli.reading import Reading, reading
from aorta_collectors.report.layers import render


@click.command()
@reading
@click.option("--step", type=click.IntRange(min=0), help="This step; else where the first bad is, or the last one.")
@click.option("--role", "roles", multiple=True, help="Only this channel, such as act or igrad (repeatable).")
@click.option("--all", "every", is_flag=True, help="All layers of all channels, however many there are.")
def layers(found: Reading, step: int | None, roles: tuple[str, ...], every: bool) -> None:
    """Show layers in execution order at one step: where magnitude jumps, where bad begins, how it spreads.

    It is a step of one process: of the first trial in which something is bad, the rank that goes bad first. Growth is
    the factor to the layer before, in the same channel; bits are those up to the largest number of the dtype; since is
    the first step in which the tensor was bad.

    --json has by_role, each with rows in execution order, whatever their number.

    Example: aorta-collectors layers triage_results/NAN-17 --cell none-none --step 13
    """
    answer = ask(found.database, step, roles)
    if found.as_json:
        found.out.json(answer.as_json())
    else:
        render(answer, found.out.console(), roles, every)
