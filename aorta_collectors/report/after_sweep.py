"""The HTML report that a sweep writes at its end, and the line that says where it is."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import TextIO

from aorta_collectors.environment import REPORT_VARIABLE
from aorta_collectors.printable import printable
from aorta_collectors.report.evidence import shown

NAME = "report.html"
_NEEDED = ("duckdb", "jinja2", "plotly")
# Some six seconds of processor time. Whoever has more than that decides when to spend the time.
_MOST_BYTES = 1 << 30


def write_beside(run_dir: Path, out: TextIO) -> None:
    """Write the report of a run into its directory, and tell where it is or how to get it. Never raises.

    A sweep that has run for days does not fail at its last line. AORTA_COLLECTORS_REPORT=off leaves the report out.
    """
    if os.environ.get(REPORT_VARIABLE, "").lower() == "off":
        return
    command = f"aorta-collectors report {shown(run_dir)}"
    lacking = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    try:
        if lacking:
            said = f"pip install 'aorta-collectors[report]', then {command}"
        else:
            from aorta_collectors.analysis.report.found import found_below
            from aorta_collectors.report.html import write_report

            found = found_below(run_dir)
            if found.lines_bytes > _MOST_BYTES:
                said = f"{found.lines_bytes / 1e9:.0f} GB of records; write it with {command}"
            else:
                write_report(found, run_dir / NAME)
                said = shown(run_dir / NAME)
    except Exception as error:
        said = f"none ({type(error).__name__}: {error}); try {command}"
    print(f"Report: {printable(said)}", file=out, flush=True)
