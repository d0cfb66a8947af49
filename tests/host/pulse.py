"""A package with a collector of a name that aorta does not know, and workloads to collect it from, for the tests.

None of it needs torch: what is tried is how a name is passed on.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.host.support import Sweep, cell, write_recipe
from tests.support import Ran, run

#: Asks the program for a file of beats, which it writes itself, as many as it is told.
COLLECTOR = """
import contextlib, os
from aorta_collectors.api import Collector, Verdict, Verification

class Pulse(Collector):
    '''Counts the beats of a heart.'''

    name = output_subdir = "pulse"
    summaries = ("beats_total",)
    schema = {
        "type": "object",
        "additionalProperties": False,
        "properties": {"BEATS": {"type": "integer", "minimum": 1}, "on_missing": {"enum": ["error", "warn"]}},
    }

    def _variables(self, options, capture):
        beats = str(options.values.get("BEATS", 1))
        return {"PULSE_DIR": str(capture.artifacts), "PULSE_RUN_ID": capture.run_id, "PULSE_BEATS": beats}

    def plan(self, launch, options, capture):
        return launch.with_env(self._variables(options, capture))

    @contextlib.contextmanager
    def armed(self, options, capture):
        os.environ.update(self._variables(options, capture()))
        try:
            yield
        finally:
            for name in ("PULSE_DIR", "PULSE_RUN_ID", "PULSE_BEATS"):
                os.environ.pop(name, None)

    def verify(self, artifacts, expected):
        if "beats" not in artifacts.sizes():
            return Verification(Verdict.MISSING, "no heart was beating")
        if artifacts.read("beats").decode().split()[0] not in expected.run_ids:
            return Verification(Verdict.STALE, "the beats of another trial")
        return Verification(Verdict.CAPTURED, "a heart was beating")

    def summarize(self, artifacts):
        return {"pulse_beats": len(artifacts.read("beats").split()) - 1}
"""
BEAT = """
import os
def beat():
    directory = os.environ.get("PULSE_DIR")
    if directory:
        beats = int(os.environ["PULSE_BEATS"])
        with open(os.path.join(directory, "beats"), "w") as stream:
            stream.write(" ".join([os.environ["PULSE_RUN_ID"], *["x"] * beats]))
        with open(os.path.join(directory, "beats_total"), "w") as stream:
            stream.write(str(beats))
"""
#: A program: beats unless it is told that it is dead, and notes that it was run.
PROGRAM = """
import os, sys
from pulse_program import beat
with open("runs", "a") as stream:
    stream.write("x")
if not os.environ.get("DEAD"):
    beat()
sys.exit(int(os.environ.get("EXIT", "0")))
"""
WORKLOAD = """
from aorta.workloads import Workload, WorkloadResult
from pulse_program import beat

class Living(Workload):
    trial_isolation_supported = frozenset({"in_process", "process"})

    def setup(self):
        pass

    def run(self):
        if self.config.get("alive", True):
            beat()
        return WorkloadResult(passed=True)
"""
ENTRIES = """[aorta.collectors]
pulse = pulse_collector:Pulse
[aorta.workloads]
living = pulse_workload:Living
[aorta.workload_policies]
living = aorta.run.validation:PROCESS_OPTIONAL_POLICY
"""


def install(site: Path) -> dict[str, str]:
    """Install the package into a new directory; returns the environment in which it is found."""
    info = site / "pulse-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: pulse\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRIES)
    modules = {"pulse_collector": COLLECTOR, "pulse_program": BEAT, "pulse_workload": WORKLOAD}
    for name, source in modules.items():
        (site / f"{name}.py").write_text(source)
    (site / "live.py").write_text(PROGRAM)
    return {"PYTHONPATH": str(site)}


def living_recipe(path: Path, **content: object) -> Path:
    defaults = {"workload": "living", "steps": 1, "cells": [cell("baseline")], "collect": {"pulse": {"BEATS": "3"}}}
    return write_recipe(path, **{**defaults, **content})


def sweep(
    cwd: Path, recipe: Path, *options: str, command: list[str] | None = None, env: Mapping[str, str] | None = None
) -> Sweep:
    """`aorta-collectors sweep run` into ./out, to its end; of a command where one is given."""
    tail = ["--", *command] if command is not None else []
    ran = _swept(cwd, [*options, *tail], recipe, env)
    if command is not None:
        return Sweep(ran, cwd / "out" / "T-1", "probe")
    found = sorted((cwd / "out").glob("*/*/*/matrix.json"))
    return Sweep(ran, found[-1].parent if found else cwd / "out", "workload")


def _swept(cwd: Path, words: list[str], recipe: Path, env: Mapping[str, str] | None) -> Ran:
    return run(["aorta-collectors", "sweep", "run", "--recipe", str(recipe), "--output", "out", *words], cwd, env)
