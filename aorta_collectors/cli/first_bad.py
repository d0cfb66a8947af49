"""`aorta-collectors first-bad PATH`: where it first goes bad, and which mitigations move or remove it."""

from __future__ import annotations

import click

from aorta_collectors.analysis.first_bad import first_bad as first_bad_of
from aorta_collectors.analysis.mitigations import across_cells
from aorta_collectors.cli.reading import Reading, reading
from aorta_collectors.report.first_bad import render
from aorta_collectors.report.first_bad_json import document

_FOUND = 3


@click.command("first-bad")
@reading
@click.option("--exit-code", is_flag=True, help="Exit with 3 where something bad was found.")
def first_bad(found: Reading, exit_code: bool) -> int:
    """Where does it first go bad, what led there, and which mitigations move or remove it?

    PATH is a run directory, a trial's record or directory, or what NANLOG_DIR named. Of several ranks the earliest is
    by training step and place within it, not by time. What the search for the origin found to be bad by design, as
    masks of -inf, is told and does not count.

    A mitigation is said to remove it only if each trial of its cell has verified evidence of as many steps as the
    baseline took to go bad. Fewer steps are "not reached", and a trial without evidence is "no evidence". A cell in
    which it may have been bad before, unseen, or that is observed otherwise than the baseline, is "undecided".

    Example: aorta-collectors first-bad triage_results/NAN-17/training/20261129-101500

    Exit codes: 0; with --exit-code 3 where something bad was found; 1 if PATH cannot be read.
    """
    cells = across_cells(found.captures.path, first_bad_of(found.captures, found.database))
    if found.as_json:
        found.out.json(document(cells))
    else:
        render(cells, found.out.console())
    return _FOUND if exit_code and any(cell.bad for cell in cells) else 0
