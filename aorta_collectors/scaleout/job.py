"""Inside a job: run the sweep of one cell as a child, and write down how it ended."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from aorta_collectors.evidence.directory import Anchor
from aorta_collectors.sweep_process import end, ends_with_parent

#: Names in an attempt's directory: what its job says at its end, without which it is lost, and what the host wrote.
OUTCOME, RESULTS = "outcome.json", "results"
# The command of this interpreter, wherever its scripts are. "-c" would look for modules in the working directory first.
_SWEEP = (
    "import sys; sys.path = [path for path in sys.path if path]; from aorta_collectors.cli import main; "
    "main(prog_name='aorta-collectors')"
)
# By these submitit tells a job about itself. What the sweep runs may use submitit too, and is no job.
_ENGINES_OWN = ("SUBMITIT_EXECUTOR", "SUBMITIT_FOLDER", "SUBMITIT_STDERR_TO_STDOUT", "SUBMITIT_LOCAL_")


@dataclass(frozen=True)
class CellJob:
    """What a job has to do.

    Attributes:
        cell: The cell's name.
        directory: The attempt's directory, absolute.
        words: What follows `aorta-collectors sweep run`.
        cwd: Where the sweep is run from.
        variables: Environment variables as they were where the job was submitted; None for unset.
    """

    cell: str
    directory: str
    words: tuple[str, ...]
    cwd: str
    variables: Mapping[str, str | None] = field(default_factory=dict)


def run_cell(job: CellJob) -> int:
    """Run the sweep and write its exit code beside its results. Returns the exit code, negative for a signal.

    Whatever ends this process ends the sweep: it must not run on where nobody waits for its result.
    """
    end_with_parent = ends_with_parent()
    end_with_parent()
    _put_aside(Path(job.directory) / RESULTS)
    argv = [sys.executable, "-c", _SWEEP, "sweep", "run", *job.words]
    sweep = subprocess.Popen(
        argv, cwd=job.cwd, env=_environment(job.variables), start_new_session=True, preexec_fn=end_with_parent
    )
    try:
        code = sweep.wait()
    finally:
        if sweep.poll() is None:
            end(sweep)
    directory = Path(job.directory)
    with Anchor(directory).open(directory) as opened:
        content = {"cell": job.cell, "exit_code": code, "host": socket.gethostname(), "pid": os.getpid()}
        opened.write(OUTCOME, json.dumps(content, indent=2).encode())
    return code


def _put_aside(results: Path) -> None:
    """A job that the cluster starts again, since its node failed, leaves what it had as it was, and begins anew."""
    if results.exists():
        earlier = len(list(results.parent.glob(f"{RESULTS}.*")))
        results.rename(results.with_name(f"{RESULTS}.{earlier + 1}"))


def _environment(variables: Mapping[str, str | None]) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_ENGINES_OWN)}
    for name, value in variables.items():
        kept.pop(name, None)
        if value is not None:
            kept[name] = value
    return kept
