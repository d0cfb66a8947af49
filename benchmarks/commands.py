"""Whole commands, from start to end: seconds on the wall, and the most memory that a process of theirs had."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.estimate import Samples

_BIN = Path(sys.executable).parent


class Took(NamedTuple):
    """What one run took.

    Attributes:
        peak_mb: Of the process that had the most, of those that the command waited for.
    """

    seconds: float
    peak_mb: float


def ours(*words: str | Path) -> list[str]:
    """The installed command."""
    return [str(_BIN / "aorta-collectors"), *map(str, words)]


def shell(line: str) -> list[str]:
    return ["bash", "-c", f"set -o pipefail; {line}"]


def run(argv: Sequence[str], allowed: tuple[int, ...] = (0,)) -> Took:
    """Run a command whose output nobody reads.

    Args:
        allowed: Exit codes that are an answer.

    Raises:
        RuntimeError: It exited with another one.
    """
    began = time.perf_counter()
    environment = {**os.environ, "LC_ALL": "C.UTF-8"}
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment)
    assert process.stderr is not None
    said = process.stderr.read()
    _, status, used = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in allowed:
        raise RuntimeError(f"{argv}: exit {process.returncode}: {said.decode(errors='replace')[-2000:]}")
    return Took(seconds, used.ru_maxrss / 1024)


def answer(argv: Sequence[str], allowed: tuple[int, ...] = (0,)) -> str:
    """What a command prints."""
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode not in allowed:
        raise RuntimeError(f"{argv}: exit {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


class Alternated(NamedTuple):
    """Rounds of several commands in turn.

    Attributes:
        peak_mb: By command, the most of all rounds.
    """

    samples: Samples
    peak_mb: Mapping[str, float]


def alternate(commands: Mapping[str, Sequence[str]], rounds: int, allowed: tuple[int, ...] = (0, 3)) -> Alternated:
    """Run each command in each round, in an order drawn anew."""
    chance = random.Random(0)
    found: list[dict[str, float]] = []
    peaks = dict.fromkeys(commands, 0.0)
    order = list(commands)
    for _ in range(rounds):
        chance.shuffle(order)
        took = {name: run(commands[name], allowed) for name in order}
        peaks = {name: max(peaks[name], took[name].peak_mb) for name in commands}
        found.append({name: one.seconds for name, one in took.items()})
    return Alternated(Samples(found, f"{rounds} rounds"), peaks)
