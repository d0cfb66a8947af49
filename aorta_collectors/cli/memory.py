"""`aorta-collectors memory`: what `collect: memory` left of one run, or of two."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from aorta_collectors.analysis.bundles.growth import LEAST_BYTES, growth
from aorta_collectors.analysis.bundles.memory_compare import compare_memory
from aorta_collectors.analysis.bundles.memory_run import MemoryRun, memory_runs_in
from aorta_collectors.analysis.captures import MEMORY
from aorta_collectors.cli.compare_side import Side, parse
from aorta_collectors.cli.output import Output
from aorta_collectors.cli.reading import output_options, selecting, tell_problems
from aorta_collectors.report.memory import render
from aorta_collectors.report.memory_compare import render as render_compared

_FOUND = 3


@click.group()
def memory() -> None:
    """Show where memory grows in a run, and compare the memory of two."""


_least = click.option(
    "--least",
    "least_bytes",
    type=click.IntRange(min=0),
    default=LEAST_BYTES,
    show_default=True,
    help="Bytes that count as growth over all steps, and over the later half of them, or as a difference.",
)
_every = click.option(
    "--all", "every", is_flag=True, help="Points and phases of all numbers, not of the main ones alone."
)
_most = click.option("--most", type=click.IntRange(min=1), default=20, show_default=True, help="Rows of each table.")


def _runs(side: Side, cell: Sequence[str], trial: Sequence[str], rank: Sequence[int]) -> list[MemoryRun]:
    captures = side.captures(cell, trial, rank, MEMORY)
    tell_problems(captures)
    return memory_runs_in(captures)


@memory.command()
@click.argument("a")
@selecting
@_least
@_every
@_most
@click.option("--exit-code", is_flag=True, help="Exit with 3 where memory in use grows.")
@output_options
def show(
    a: str,
    cell: tuple[str, ...],
    trial: tuple[str, ...],
    rank: tuple[int, ...],
    least_bytes: int,
    every: bool,
    most: int,
    exit_code: bool,
    as_json: bool,
    output: Path | None,
) -> None:
    """Show memory at each point over the steps, what grows, and in which phase of a step.

    A is PATH[:CELL[:TRIAL]][@RANK]. Each rank and each device is by itself. The first step is shown and does not count:
    what it takes, such as an optimizer's state, it mostly keeps. Growth is the trend over the other steps at the point
    where a step holds least, with an interval of 95 % that takes steps for independent of each other, and by at least
    --least bytes, over all steps and in the later half of them.

    What is reserved, and not in use, is capacity that an allocator keeps: a private pool of a CUDA graph keeps it for
    replays. More of it is told, and is no growth by itself.

    Exits with 0, and with --exit-code with 3 where memory in use grows.

    Example: aorta-collectors memory show memory_out --exit-code
    """
    found = [growth(run, least_bytes) for run in _runs(parse(a), cell, trial, rank)]
    with Output(output) as out:
        if as_json:
            out.json([each.to_json() for each in found])
        else:
            render(found, out.console(), most, every)
    sys.exit(_FOUND if exit_code and any(each.growing for each in found) else 0)


@memory.command()
@click.argument("a")
@click.argument("b")
@selecting
@_least
@_every
@_most
@click.option("--exit-code", is_flag=True, help="Exit with 3 where B holds more in use, or grows more.")
@output_options
def compare(
    a: str,
    b: str,
    cell: tuple[str, ...],
    trial: tuple[str, ...],
    rank: tuple[int, ...],
    least_bytes: int,
    every: bool,
    most: int,
    exit_code: bool,
    as_json: bool,
    output: Path | None,
) -> None:
    """Compare memory of two runs at the same points: absolute numbers of both, and what each phase changes.

    A is the baseline, B the candidate. Both are PATH[:CELL[:TRIAL]][@RANK]; B may leave out PATH where it is that of A.
    Compared are medians over the steps after the first. Growth is judged as in `show`.

    Exits with 0, and with --exit-code with 3 where B holds more in use at all points, or grows more, by --least.

    Example: aorta-collectors memory compare RUN:none-none :cached-none
    """
    left = parse(a)
    right = parse(b, left.path)
    baseline, candidate = (_runs(side, cell, trial, rank) for side in (left, right))
    comparison = compare_memory(baseline, candidate, least_bytes)
    with Output(output) as out:
        if as_json:
            out.json({"a": left.text, "b": right.text, **comparison.to_json()})
        else:
            render_compared(comparison, out.console(), left.text, right.text, most, every)
    sys.exit(_FOUND if exit_code and comparison.found else 0)
