"""`aorta-collectors compare A B`: where two runs, cells, trials or ranks part."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from aorta_collectors.analysis.compare import compare as compared
from aorta_collectors.analysis.compare_pairs import paired
from aorta_collectors.analysis.database import Database
from aorta_collectors.analysis.tolerance import tolerances
from aorta_collectors.cli.compare_side import parse
from aorta_collectors.cli.criteria import tolerance
from aorta_collectors.cli.output import Output
from aorta_collectors.cli.progress import Bar
from aorta_collectors.cli.reading import output_options, selecting, tell_problems
from aorta_collectors.report.compare import render, tolerance_used


@click.command()
@click.argument("a")
@click.argument("b")
@selecting
@click.option("--rtol", type=float, callback=tolerance, help="Relative tolerance of all dtypes, such as 1e-3.")
@click.option("--atol", type=float, callback=tolerance, help="Absolute tolerance, in the tensors' own unit.")
@click.option("--exact", is_flag=True, help="Recorded numbers must be the same, and of the same dtype.")
@click.option("--most", type=click.IntRange(min=1), default=20, show_default=True, help="Rows of each table.")
@output_options
def compare(
    a: str,
    b: str,
    cell: tuple[str, ...],
    trial: tuple[str, ...],
    rank: tuple[int, ...],
    rtol: float | None,
    atol: float | None,
    exact: bool,
    most: int,
    as_json: bool,
    output: Path | None,
) -> None:
    """Compare the records of two runs, cells, trials or ranks: where they part first, and how that spreads.

    A and B are PATH[:CELL[:TRIAL]][@RANK], such as RUN:none-none or trial_d0_m0_t0.json@1. B may leave out PATH where
    it is that of A: RUN:none-none :warmup-none, or RUN@0 @1. A text that is a path as a whole is taken for that path.

    Runs are compared by cell, trial and rank; two cells, trials or ranks whatever their names. Counts of NaN, Inf, huge
    and out-of-range elements must agree; the largest magnitude, the ends of the range, and the moments where both sides
    have them must agree within the dtype's tolerance, by default that of torch.testing.assert_close. Its atol hides
    what happens in tensors smaller than it: --atol 0 shows that. A step that one side did not record is no difference;
    run both with NANLOG_SAMPLE_EVERY=1. Equal statistics are no proof of equal tensors.

    Exits with 0 if all that was compared matched, and with 3 otherwise, also if nothing could be compared.

    Example: aorta-collectors compare triage_results/NAN-17/training/20261129-101500:none-none :warmup-none
    """
    if exact and (rtol is not None or atol is not None):
        raise click.UsageError("--exact leaves no room for --rtol and --atol")
    side_a = parse(a)
    side_b = parse(b, side_a.path)
    left, right = (side.captures(cell, trial, rank) for side in (side_a, side_b))
    for captures in (left, right):
        tell_problems(captures)
    pairing = paired(left, right)
    allowed = tolerances(rtol, atol)
    with Output(output) as out, Bar("comparing records") as bar, Database(pairing.captures, bar) as database:
        comparison = compared(database, pairing, allowed, exact, most)
        used = tolerance_used(rtol, atol, exact)
        if as_json:
            sides = {"a": side_a.text, "b": side_b.text, "tolerance": used}
            out.json({**sides, **comparison.to_json()})
        else:
            render(comparison, out.console(), side_a.text, side_b.text, used, most)
    sys.exit(0 if comparison.all_matched else 3)
