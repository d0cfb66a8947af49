"""The cases with their truths, and how one is run: bare, under the engine, and under the brute-force checker."""

from __future__ import annotations

import json
import os
import queue
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support import PYTHON, Ran, run

HERE = Path(__file__).resolve().parent
STAGES = ("data", "parameter", "forward", "loss", "backward", "optimizer")


@dataclass(frozen=True)
class Place:
    """Where the first bad value comes into being: `module` in `stage` of `step`, on `rank`."""

    stage: str
    module: str
    step: int
    rank: int

    @classmethod
    def earliest(cls, found: Iterable[Mapping[str, Any] | None]) -> Place | None:
        """The first in order of step and stage among what the processes of a run have found; "unknown" comes last."""
        places = [cls(one["stage"], one["module"], one["step"], one["rank"]) for one in found if one is not None]
        known = [place for place in places if place.stage in STAGES]
        if known:
            return min(known, key=lambda place: (place.step, STAGES.index(place.stage), place.rank))
        return places[0] if places else None


@dataclass(frozen=True)
class Case:
    """One script.

    Attributes:
        ranks: Processes under torchrun, where there are several.
        alone: It compiles, or starts processes or a process group: not to be run as a fork.
        masks: -inf stands for "masked" in it: the checker, unlike the engine, is told.
    """

    name: str
    truth: Place | None
    ranks: int
    alone: bool
    masks: bool

    @property
    def script(self) -> Path:
        return HERE / "cases" / f"{self.name}.py"


def all_cases() -> list[Case]:
    table = json.loads((HERE / "truth.json").read_text())
    return [
        Case(
            name,
            truth=Place(**row["truth"]) if row["truth"] else None,
            ranks=row.get("ranks", 1),
            alone=row.get("alone", False),
            masks=row.get("masks", False),
        )
        for name, row in table.items()
    ]


class Forks:
    """Runs programs as forks of processes that have torch imported; threads may share it.

    Args:
        at_once: Such processes, each of which runs one program at a time.
        modules: What they import besides torch.
    """

    def __init__(self, at_once: int, *modules: str) -> None:
        self._idle: queue.Queue[subprocess.Popen[str]] = queue.Queue()
        self._all = []
        for _ in range(at_once):
            process = subprocess.Popen(
                [PYTHON, str(HERE / "forks.py"), *modules],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
            self._all.append(process)
            self._idle.put(process)

    def run(self, argv: list[str], directory: Path, env: Mapping[str, str]) -> Ran:
        """Run what python is given as `argv` in `directory`, where the output is left as well."""
        output = directory / "output"
        task = {"argv": argv, "env": dict(env), "cwd": str(directory), "output": str(output)}
        process = self._idle.get()
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps(task) + "\n")
            process.stdin.flush()
            code = int(process.stdout.readline())
        finally:
            self._idle.put(process)
        return Ran(code, output.read_text(), Path(f"{output}.err").read_text())

    def close(self) -> None:
        for process in self._all:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(timeout=30)


def bare(case: Case, directory: Path, forks: Forks) -> Ran:
    return _run(case, [str(case.script)], directory, {}, None if case.alone else forks)


def engine(case: Case, directory: Path, forks: Forks | None = None) -> tuple[Ran, Place | None]:
    """The run, and the origin that the engine names. Without `forks` each run is a process of its own."""
    out = directory / "nanlog"
    words = ["-m", "aorta_collectors.layer_numerics", str(case.script)]
    env = {"NANLOG_DIR": str(out), "NANLOG_ORIGIN": "1"}
    ran = _run(case, words, directory, env, None if case.alone else forks)
    summaries = [json.loads(path.read_text()) for path in sorted(out.glob("summary_*.json"))]
    assert summaries, ran.err
    return ran, Place.earliest(summary["origin"] for summary in summaries)


def brute_force(case: Case, directory: Path, forks: Forks) -> tuple[Ran, Place | None]:
    """The run, and the place that the checker finds."""
    out = directory / "found"
    words = [str(HERE / "brute_force.py"), *(["--masks"] if case.masks else []), str(out), str(case.script)]
    ran = _run(case, words, directory, {}, forks)
    return ran, Place.earliest(json.loads(path.read_text()) for path in sorted(out.glob("*.json")))


def _run(case: Case, words: list[str], directory: Path, env: Mapping[str, str], forks: Forks | None) -> Ran:
    """Run what python is given as `words`, in `directory`."""
    if case.ranks > 1:
        return run(["torchrun", "--standalone", f"--nproc-per-node={case.ranks}", *words], directory, env)
    return forks.run(words, directory, env) if forks is not None else run([PYTHON, *words], directory, env)
