"""`aorta-collectors overlap PATH`: what lay in the memory of a bad tensor."""

from __future__ import annotations

import click

from aorta_collectors.analysis.overlap import overlaps
from aorta_collectors.cli.reading import Reading, reading
from aorta_collectors.report.overlap import render


@click.command()
@click.option("--step", type=click.IntRange(min=0), help="Of the first bad record in this step.")
@click.option("--layer", help="Of the first bad record of this layer: a name, a pattern, or the end of one.")
@click.option("--most", type=click.IntRange(min=1), default=20, show_default=True, help="Rows of each table.")
@click.option("--exit-code", is_flag=True, help="Exit with 3 if anything overlaps.")
@reading
def overlap(to_read: Reading, step: int | None, layer: str | None, most: int, exit_code: bool) -> int:
    """Show which records lie in the memory of a bad tensor, in its step or the one before.

    PATH is a run directory, a trial's directory or record, or what NANLOG_DIR named. By default that is asked for the
    first bad record of each process. Records have addresses with NANLOG_ADDR=1; NANLOG_PRE_CONTEXT=1 keeps the step
    before. Addresses of two processes are never compared.

    "same bytes": both tensors, if contiguous, lie there. "same storage": one of them may reach into the other, since
    strides are not recorded. The allocator gives the memory of a tensor that is gone to the next one, so that an
    overlap is a lead, no proof: look for a write in place, a view, or a buffer that is used again too early.

    Exits with 0, and with --exit-code with 3 if anything overlaps.

    Example: aorta-collectors overlap nan_logger_out --layer blocks.0.attention.scores
    """
    found = overlaps(to_read.database, step, layer, most)
    if to_read.as_json:
        to_read.out.json([bad.to_json() for bad in found])
    else:
        render(found, to_read.out.console(), step, layer)
    return 3 if exit_code and any(bad.num_overlaps for bad in found) else 0
