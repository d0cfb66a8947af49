"""Sweeps of the real `aorta` command for the tests: recipes, programs, and what a sweep leaves behind."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import PYTHON, TRAIN, Ran, run

OURS = "aorta-collectors"

#: Takes further arguments from TRAIN_ARGS, so that the cells of one probe sweep can differ.
PROGRAM = 'import os, sys\nsys.argv += os.environ.get("TRAIN_ARGS", "").split()\n' + TRAIN

TINY_TRAINING = {
    "device": "cpu",
    "parallelism": "ddp",
    "dtype": "float32",
    "seq_len": 8,
    "model": {"kind": "mlp", "hidden_size": 16, "num_layers": 2, "vocab_size": 64},
}
TINY_INFERENCE = {
    "device": "cpu",
    "dtype": "float32",
    "request": {"batch_size": 2, "prompt_len": 8, "generate_tokens": 2},
    "model": {"kind": "mlp", "hidden_size": 16, "num_layers": 2, "vocab_size": 64},
}

#: Runs the host's command line as if this plugin were not installed: none of its entry points is there to be found.
WITHOUT_PLUGIN = """
import importlib.metadata as metadata
import sys

find = metadata.entry_points


def entry_points(**selection):
    found = find(**selection)
    if not isinstance(found, metadata.EntryPoints):
        return found
    return metadata.EntryPoints(entry for entry in found if entry.dist is None or entry.dist.name != "aorta-collectors")


metadata.entry_points = entry_points
from aorta.cli import main

sys.argv[0] = "aorta"
main()
"""


@dataclass(frozen=True)
class Sweep:
    """A finished sweep.

    Attributes:
        ran: The command.
        run_dir: Where its matrix.json is, or would be.
        flow: "workload" or "probe": they lay their trials out differently.
    """

    ran: Ran
    run_dir: Path
    flow: str

    def cell_dir(self, cell: str) -> Path:
        if self.flow == "probe":
            return self.run_dir / f"{cell}-none" / "_subprocess"
        return self.run_dir / "cells" / cell / self.matrix["workload"]

    @property
    def matrix(self) -> dict[str, Any]:
        return read_json(self.run_dir / "matrix.json")

    def cell(self, cell: str) -> dict[str, Any]:
        """The cell's row of matrix.json."""
        name = f"{cell}-none" if self.flow == "probe" else cell
        return next(row for row in self.matrix["cells"] if row["name"] == name)

    def receipt(self, cell: str = "none", trial: int = 0, collector: str = "layer_numerics") -> dict[str, Any]:
        return read_json(self.cell_dir(cell) / f"receipt_d0_m0_t{trial}_{collector}.json")

    def trial(self, cell: str = "none", trial: int = 0) -> dict[str, Any]:
        return read_json(self.cell_dir(cell) / f"trial_d0_m0_t{trial}.json")

    def artifacts(self, cell: str = "none", trial: int = 0, collector: str = "layer_numerics") -> Path:
        return self.cell_dir(cell) / f"trial_d0_m0_t{trial}" / collector

    def command_dir(self, cell: str = "none", trial: int = 0) -> Path:
        """Probe flow: what the host keeps of the command."""
        return self.run_dir / f"{cell}-none" / f"trial_{trial}"

    def command(self, cell: str = "none", trial: int = 0) -> dict[str, Any]:
        """Probe flow: the command's own result.json."""
        return read_json(self.command_dir(cell, trial) / "result.json")

    def stdout(self, cell: str = "none", trial: int = 0) -> str:
        return (self.command_dir(cell, trial) / "stdout.log").read_text()


def read_json(path: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(path.read_text())
    return loaded


def write_recipe(path: Path, **content: Any) -> Path:
    content = {"schema_version": 1, "ticket": "T-1", "trials": 1, **content}
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return path


def cell(name: str, mitigation: str = "none", **content: Any) -> dict[str, Any]:
    return {"name": name, "mitigations": [mitigation], "environment": "local", **content}


def workload_recipe(path: Path, workload: str = "training", **content: Any) -> Path:
    tiny = TINY_TRAINING if workload == "training" else TINY_INFERENCE
    defaults = {"steps": 3, "workload_config": tiny, "cells": [cell("baseline")]}
    return write_recipe(path, workload=workload, **{**defaults, **content})


def inference_recipe(path: Path, options: Mapping[str, str]) -> Path:
    """Two trials of `inference`, watched and uninstrumented."""
    cells = [cell("baseline"), cell("bare", "no_collectors")]
    collect = {"layer_numerics": dict(options)}
    return workload_recipe(path, "inference", trials=2, steps=2, cells=cells, collect=collect)


def probe_recipe(path: Path, axis: list[str] | None = None, **content: Any) -> Path:
    return write_recipe(path, mode="probe", mitigation_axis=axis or ["none"], diagnostic_axis=["none"], **content)


def mitigations(path: Path, bundles: Mapping[str, Mapping[str, str]]) -> Path:
    """A mitigations file: names that a recipe's axis can use for sets of variables."""
    path.write_text(json.dumps({"version": 1, "mitigations": bundles}))
    return path


def aorta(words: list[str], cwd: Path, env: Mapping[str, str] | None = None, *, plugin: bool = True) -> Ran:
    """The installed command, or the same one as on a host without this plugin."""
    if plugin:
        return run(["aorta", *words], cwd, env)
    script = cwd / "aorta_without_plugin.py"
    script.write_text(WITHOUT_PLUGIN)
    return run([PYTHON, str(script), *words], cwd, env)


def sweep_workload(
    cwd: Path,
    recipe: Path,
    *options: str,
    env: Mapping[str, str] | None = None,
    plugin: bool = True,
    output: str = "out",
) -> Sweep:
    ran = aorta(["sweep", "run", "--recipe", str(recipe), "--output", output, *options], cwd, env, plugin=plugin)
    found = sorted((cwd / output).glob("*/*/*/matrix.json"))
    return Sweep(ran, found[-1].parent if found else cwd / output, "workload")


def sweep_command(
    cwd: Path,
    recipe: Path,
    command: list[str],
    *options: str,
    env: Mapping[str, str] | None = None,
    plugin: bool = True,
    output: str = "out",
) -> Sweep:
    words = ["sweep", "run", "--recipe", str(recipe), "--output", output, *options, "--", *command]
    return Sweep(aorta(words, cwd, env, plugin=plugin), cwd / output / "T-1", "probe")


def once(factory: pytest.TempPathFactory, name: str, build: Callable[[Path], Sweep]) -> Sweep:
    """One sweep for many tests: built by the first worker that needs it, read by all of them."""
    base = factory.getbasetemp()
    if os.environ.get("PYTEST_XDIST_WORKER"):
        base = base.parent
    directory, done = base / name, base / f"{name}.json"
    with (base / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            directory.mkdir(exist_ok=True)
            sweep = build(directory)
            done.write_text(json.dumps({**asdict(sweep), "run_dir": str(sweep.run_dir)}))
        kept = read_json(done)
    return Sweep(Ran(**kept["ran"]), Path(kept["run_dir"]), kept["flow"])
