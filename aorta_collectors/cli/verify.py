"""`aorta-collectors verify RUN_DIR`: is the evidence there, now?"""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import click

from aorta_collectors.cli.progress import Bar
from aorta_collectors.errors import ArtifactError
from aorta_collectors.evidence.run import verify_run
from aorta_collectors.printable import printable
from aorta_collectors.registry import collector_names, load_collector
from aorta_collectors.report.evidence import render


@click.command()
@click.argument("run_dir", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--all", "every", is_flag=True, help="A row for each trial, also of a run with more than 40.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def verify(run_dir: Path, every: bool, as_json: bool) -> None:
    """Check the evidence of every trial below RUN_DIR against its receipt.

    RUN_DIR is what `aorta sweep run` or `aorta run` wrote to. Exits with 1 if any request is unsatisfied, or if
    nothing below RUN_DIR asked for evidence. Symbolic links below RUN_DIR are not followed.

    Of a run with more than 40 trials, the satisfied ones share a row for each cell; what is not satisfied is always
    listed one by one, with the reason. JSON lists everything.

    Example: aorta-collectors verify triage_results/NAN-17/training/20261129-101500
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # not every terminal has a letter for every file name
    links: list[Path] = []
    with Bar("verifying trials", counted=True) as bar:
        findings = verify_run(run_dir, collector_names(), load_collector, bar, links.append, in_processes=True)
    if as_json:
        click.echo(json.dumps([finding.to_json() for finding in findings], indent=2))
    else:
        render(findings, sys.stdout, every)
    if links:
        click.echo(f"{len(links)} symbolic link(s) not followed, such as {printable(str(min(links)))}", err=True)
    if not findings:
        names = ", ".join(sorted(collector_names()))
        raise ArtifactError(f"no trial below {printable(str(run_dir))} asked for evidence of {names}")
    unsatisfied = sum(not finding.satisfied for finding in findings)
    if not as_json:
        click.echo(f"{len(findings) - unsatisfied} of {len(findings)} requests satisfied")
    sys.exit(1 if unsatisfied else 0)
