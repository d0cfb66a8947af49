"""`aorta-collectors verify RUN_DIR`: is the evidence there, now?"""

from __future__ import annotations

import functools
import json
import sys
from pathlib import Path

import click

from aorta_collectors.errors import ArtifactError
from aorta_collectors.evidence.run import verify_run
from aorta_collectors.evidence.table import render
from aorta_collectors.registry import collector_names, load_collector


@click.command()
@click.argument("run_dir", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def verify(run_dir: Path, as_json: bool) -> None:
    """Check the evidence of every trial below RUN_DIR against its receipt.

    RUN_DIR is what `aorta sweep run` or `aorta run` wrote to. Exits with 1 if any request is unsatisfied, or if
    nothing below RUN_DIR asked for evidence.

    Example: aorta-collectors verify triage_results/NAN-17/training/20261129-101500
    """
    findings = verify_run(run_dir, collector_names(), functools.cache(load_collector))
    if as_json:
        click.echo(json.dumps([finding.to_json() for finding in findings], indent=2))
    else:
        render(findings, sys.stdout)
    if not findings:
        raise ArtifactError(f"no trial below {run_dir} asked for evidence of {', '.join(sorted(collector_names()))}")
    unsatisfied = sum(not finding.satisfied for finding in findings)
    if not as_json:
        click.echo(f"{len(findings) - unsatisfied} of {len(findings)} requests satisfied")
    sys.exit(1 if unsatisfied else 0)
