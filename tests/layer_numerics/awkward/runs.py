"""Running the awkward programs: bare, and through the front-end with and without an origin, as forks that run ahead."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.corpus.runs import Forks
from tests.support import Ran, records

PROGRAMS = Path(__file__).resolve().parent / "programs"
_ALL_CHANNELS = "act,input,igrad,weight,bias,wgrad,bgrad"
#: A worker of pytest's own runs one test after the other, so that it has no use for a second process.
_AT_ONCE = 1 if "PYTEST_XDIST_WORKER" in os.environ else 2
# What differs from run to run: nothing of it is the program's doing.
_PIDS = re.compile(r"\b\d{3,}\b|\d\d:\d\d:\d\d[.\d]*")


@dataclass(frozen=True)
class Armed:
    """A program's run through the front-end, and what it left."""

    ran: Ran
    summary: dict[str, Any]
    records: list[dict[str, Any]]


@dataclass(frozen=True)
class Outcome:
    """The three runs of a program in which something goes bad, and one in which nothing does."""

    bare: Ran
    plain: Armed
    origin: Armed
    clean: Armed | None


class Ahead:
    """Runs programs before they are asked for, some at once."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._forks = Forks(_AT_ONCE)
        self._pool = ThreadPoolExecutor(_AT_ONCE)
        self._begun: dict[str, Future[Outcome]] = {}

    def begin(self, program: str, *, clean: bool) -> Future[Outcome]:
        """Have `program`, such as "roots.adversarial", run; `clean`: also where nothing goes bad."""
        if program not in self._begun:
            self._begun[program] = self._pool.submit(self._outcome, program, clean)
        return self._begun[program]

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)
        self._forks.close()

    def _outcome(self, program: str, clean: bool) -> Outcome:
        script, _, name = program.partition(".")
        words = [str(PROGRAMS / f"{script}.py"), name]
        bare = self._forks.run([*words, "bad"], Path(tempfile.mkdtemp(dir=self._directory)), {})
        plain = self._armed([*words, "bad"], {})
        origin = self._armed([*words, "bad"], {"NANLOG_ORIGIN": "1"})
        return Outcome(bare, plain, origin, self._armed(words, {"NANLOG_ORIGIN": "1"}) if clean else None)

    def _armed(self, words: list[str], env: dict[str, str]) -> Armed:
        directory = Path(tempfile.mkdtemp(dir=self._directory))
        out = directory / "nanlog"
        env = {"NANLOG_DIR": str(out), "NANLOG_SAMPLE_EVERY": "1", "NANLOG_CHANNELS": _ALL_CHANNELS, **env}
        ran = self._forks.run(["-m", "aorta_collectors.layer_numerics", *words], directory, env)
        summaries = sorted(out.glob("summary_rank*.json"))
        assert summaries, f"nothing was left: exit {ran.code}\n{ran.err}"
        summary = json.loads(summaries[0].read_text())
        return Armed(ran, summary, records(out / "layers_rank0.jsonl"))


def noise(ran: Ran) -> list[str]:
    """What a program wrote on stderr: not our lines, and of a traceback the last line alone."""
    lines = [line for line in ran.err.splitlines() if "nanlog: " not in line]
    if ran.code != 0:
        lines = lines[-1:]
    return [_PIDS.sub("#", line) for line in lines]


def ahead(directory: Path, programs: list[tuple[str, bool]], begin: Callable[[], bool]) -> Iterator[Ahead]:
    """A fixture's body: run `programs` now if `begin` says so, else when they are asked for."""
    runs = Ahead(directory)
    if begin():
        for program, clean in programs:
            runs.begin(program, clean=clean)
    yield runs
    runs.close()


def is_alone() -> bool:
    """Whether no other process runs tests of the same module."""
    return "PYTEST_XDIST_WORKER" not in os.environ
