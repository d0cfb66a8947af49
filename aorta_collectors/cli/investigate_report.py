"""`aorta-collectors investigate report ROOT`: what came out, as REPORT.md and as HTML."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import click

from aorta_collectors.cli.criteria import chosen, criterion_options
from aorta_collectors.cli.printed import printed
from aorta_collectors.cli.progress import Bar
from aorta_collectors.investigate.agreement import criterion_for
from aorta_collectors.investigate.files import open_investigation
from aorta_collectors.investigate.report.conclusion import counted
from aorta_collectors.investigate.report.writing import PAGE, REPORT, rendered, write_report
from aorta_collectors.printable import printable
from aorta_collectors.report.evidence import shown

_RUN = "aorta-collectors investigate run"


@click.command()
@click.argument("root", type=click.Path(exists=True, file_okay=False, path_type=Path))
@partial(criterion_options, of="Tensors")
@click.option("--json", "as_json", is_flag=True, help="Print all of it as JSON too.")
def report(root: Path, as_json: bool, **agreement: Any) -> None:
    """Write what came out of the investigation in ROOT: REPORT.md, report.html, and evidence/ with what tools print.

    It keeps apart what tools showed, what a person added, and what is concluded. Each conclusion names the artifacts
    that it stands on. Files in ROOT/supplemental, and ROOT/inference.md and ROOT/gaps.md, are a person's own: they are
    shown, and a statement that links to no artifact is marked. Whether the criterion is met, the report does not say.

    When tensors count as the same was declared by `new`. Another criterion can be chosen here; that it was, after the
    runs, stands in the report. It may be written while runs are missing, and again: only these three are replaced.

    Example: aorta-collectors investigate report nan-42

    Exit codes: 0; 1 if ROOT cannot be read or written.
    """
    asked = chosen(**agreement)
    investigation = open_investigation(root)
    criterion = criterion_for(investigation.metadata, asked)
    with Bar("reading evidence") as bar:
        found = rendered(investigation, criterion, printed, bar)
    write_report(found)
    if as_json:
        click.echo(json.dumps(found.report.to_json(), indent=2, allow_nan=False, default=str))
        return
    told = [*found.report.caveats, found.report.unanswered]
    lines = [line for line in told if line]
    lines += [conclusion.text for conclusion in found.report.conclusions]
    left = len(found.report.not_begun)
    if left:
        total = len(found.report.investigation.metadata["schedule"])
        lines.append(f"{total - left} of {counted(total, 'run')} made; `{_RUN} {shown(root)}` makes the others")
    lines += [str(root.resolve() / name) for name in (REPORT, PAGE)]
    lines.append(f"Next: aorta-collectors investigate verify {shown(root)}")
    # At once: a reader that has seen enough after the first line, as head has, is no error.
    click.echo("\n".join(printable(line, 10_000) for line in lines))
