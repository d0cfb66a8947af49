"""`aorta-collectors investigate verify ROOT`: is everything still as it was recorded?"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from aorta_collectors.cli.printed import printed
from aorta_collectors.cli.progress import Bar
from aorta_collectors.investigate.report.conclusion import counted
from aorta_collectors.investigate.verify.whole import verify_investigation
from aorta_collectors.printable import printable


@click.command()
@click.argument("root", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def verify(root: Path, as_json: bool) -> None:
    """Check the investigation in ROOT: files, receipts, points, order, commands, and the report.

    Every file of every run is held against its digest, and every receipt is verified again. Runs must have been made
    once each, in the declared order. Commands must still find their programs and files as they were. The report is made
    anew from the artifacts, and each line of it must be what is there. Each fault has a line: the place, what is wrong,
    and what to do. An investigation that was moved or copied is looked at where it lies; that is a note, and no fault.

    Example: aorta-collectors investigate verify nan-42

    Exit codes: 0 nothing is wrong; 1 something is, or ROOT cannot be read.
    """
    with Bar("verifying") as bar:
        found = verify_investigation(root, printed, bar)
    if as_json:
        click.echo(json.dumps(found.to_json(), indent=2, allow_nan=False))
    else:
        lines = [fault.line for fault in found.faults]
        count = len(found.faults)
        said = counted(count, "fault") if count else "all is as it was recorded"
        what = "existing artifacts" if found.investigation.metadata["existing"] else counted(found.runs, "run")
        if found.note:
            lines.append(printable(f"note: {found.note}", 10_000))
        click.echo("\n".join((*lines, f"{what}: {said}")))
    sys.exit(1 if found.faults else 0)
