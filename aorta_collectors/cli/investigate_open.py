"""`aorta-collectors investigate open ROOT`: a question about artifacts that are there already."""

from __future__ import annotations

from pathlib import Path

import click

from aorta_collectors.investigate.design import BASELINE, CANDIDATE, KINDS
from aorta_collectors.investigate.existing import open_existing
from aorta_collectors.printable import printable
from aorta_collectors.report.evidence import shown

_ARTIFACTS = click.Path(exists=True, file_okay=False, path_type=Path)


@click.command("open")
@click.argument("root", type=click.Path(path_type=Path))
@click.option("--question", required=True, help="What is asked, in a sentence.")
@click.option("--criterion", required=True, help="What would answer it.")
@click.option("--baseline", required=True, type=_ARTIFACTS, metavar="PATH", help="Artifacts that are known.")
@click.option("--candidate", type=_ARTIFACTS, metavar="PATH", help="Those that are compared with them.")
@click.option("--kind", type=click.Choice(KINDS), default="values", show_default=True, help="Of the question.")
def open_(root: Path, question: str, criterion: str, baseline: Path, candidate: Path | None, kind: str) -> None:
    """Ask a question about artifacts that are there already, in ROOT, a directory that does not exist yet.

    PATH is the directory of a run, a cell or a trial, or what TENSORS_DIR, MEMORY_DIR and the like named. Nothing is
    run and nothing is copied: where the files lie is written down, with the digest of each. `report` and `verify` work
    as for an investigation of runs, and the report says at its top that the artifacts were there before.

    Example: aorta-collectors investigate open old-42 --question "Did the two runs differ?" --criterion "every output
    agrees" --baseline triage_results/A --candidate triage_results/B

    Exit codes: 0 opened, 1 ROOT exists or something cannot be read, 2 a path has nothing that could be looked at.
    """
    paths = {BASELINE: baseline, **({CANDIDATE: candidate} if candidate is not None else {})}
    investigation = open_existing(root, question, criterion, kind, paths)
    for entry in investigation.metadata["existing"]:
        click.echo(printable(f"{entry['variant']}: {len(entry['sha256'])} files below {entry['path']}"))
    click.echo(f"Next: aorta-collectors investigate report {shown(root)}")
