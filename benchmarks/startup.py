"""The start of a sweep that asks for no evidence: what having the plugin installed adds to it."""

from __future__ import annotations

import random
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.estimate import Samples
from benchmarks.row import Bar, Row
from benchmarks.sizes import Sizes

#: Runs the host's command line with or without this package's entry points, and says at the end what was imported.
_PROGRAM = """
import atexit
import importlib.metadata as metadata
import sys

hidden = sys.argv.pop(1) == "without"
find = metadata.entry_points


def entry_points(**selection):
    found = find(**selection)
    if not hidden or not isinstance(found, metadata.EntryPoints):
        return found
    return metadata.EntryPoints(entry for entry in found if entry.dist is None or entry.dist.name != "aorta-collectors")


def tell():
    print("LOADED", "torch" in sys.modules, "aorta_collectors" in sys.modules, file=sys.stderr)


metadata.entry_points = entry_points
atexit.register(tell)
from aorta.cli import main

sys.argv[0] = "aorta"
main()
"""

_RECIPE = """
schema_version: 1
ticket: BENCH-1
mode: probe
trials: 1
mitigation_axis: [none]
diagnostic_axis: [none]
"""


def start_rows(sizes: Sizes, directory: Path) -> list[Row]:
    """Row `start`: milliseconds that the plugin adds to a dry run without a request. It must not import torch."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "aorta_command.py").write_text(_PROGRAM)
    (directory / "recipe.yaml").write_text(_RECIPE)
    chance, wall, cpu = random.Random(0), [], []
    sides = ["with", "without"]
    loaded: dict[str, str] = {}
    _start("with", directory)
    for _ in range(sizes.starts):
        chance.shuffle(sides)
        taken = {}
        for side in sides:
            wall_s, cpu_s, loaded[side] = _start(side, directory)
            taken[side] = wall_s, cpu_s
        wall.append({side: seconds for side, (seconds, _) in taken.items()})
        cpu.append({side: seconds for side, (_, seconds) in taken.items()})
    if loaded != {"with": "LOADED False True", "without": "LOADED False False"}:
        raise RuntimeError(f"torch must not be imported, the plugin only where it is installed: {loaded}")
    added = Samples(wall).added("with", "without").scaled(1e3)
    processor = Samples(cpu).added("with", "without").scaled(1e3)
    numbers: dict[str, float | str] = {
        "without ms": 1e3 * statistics.median(taken["without"] for taken in wall),
        "added processor time ms": processor.value,
        "its interval": f"{processor.low:.3g} to {processor.high:.3g}",
        "imports torch": "no",
    }
    return [Row("start", "sweep start-up added by the plugin without a request", added, Bar(50), numbers, unit=" ms")]


def _start(side: str, directory: Path) -> tuple[float, float, str]:
    """Seconds of wall clock and of processor, and which modules were loaded."""
    argv = [sys.executable, "aorta_command.py", side, "sweep", "run", "--recipe", "recipe.yaml", "--dry-run"]
    argv += ["--output", "out", "--", "python", "-c", "pass"]
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(argv, cwd=directory, capture_output=True, text=True, check=False)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise RuntimeError(f"aorta failed:\n{done.stdout}\n{done.stderr}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, cpu, done.stderr.strip().rpartition("\n")[2]
