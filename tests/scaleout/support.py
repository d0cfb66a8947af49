"""Submissions of the real command for the tests."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.host.support import read_json
from tests.support import BIN, Ran, interruptible, run

OUT = Path("out")


def submit(cwd: Path, words: list[str], command: list[str] | None = None, env: Mapping[str, str] | None = None) -> Ran:
    """`aorta-collectors submit` into ./out, to its end."""
    return run(_argv(words, command), cwd, env, timeout=170)


def _argv(words: list[str], command: list[str] | None) -> list[str]:
    tail = ["--", *command] if command else []
    return ["aorta-collectors", "submit", *words, "--output", str(OUT), *tail]


def submit_and(
    act: Callable[[subprocess.Popen[bytes]], object],
    when: Callable[[str], bool],
    cwd: Path,
    words: list[str],
    command: list[str] | None = None,
    env: Mapping[str, str] | None = None,
) -> Ran:
    """The same, and do something to it, or to its world, as soon as what stands on stderr says `when`."""
    inherited = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "OMP_NUM_THREADS": "1", **(env or {})}
    out, err = cwd / "stdout", cwd / "stderr"
    with out.open("w") as stdout, err.open("w") as stderr:
        process = subprocess.Popen(
            _argv(words, command),
            cwd=cwd,
            env=inherited,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
            preexec_fn=interruptible,
        )
    until(lambda: when(err.read_text()) or process.poll() is not None)
    act(process)
    return Ran(process.wait(150), out.read_text(), err.read_text())


def interrupt(process: subprocess.Popen[bytes]) -> None:
    """As the terminal does, which interrupts all processes in the foreground."""
    os.killpg(process.pid, signal.SIGINT)


def until(condition: Callable[[], bool], timeout_s: float = 90) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.05)


def ledger(cwd: Path) -> dict[str, Any]:
    """Of the submission, or an empty one before there is any."""
    path = cwd / OUT / "submission.json"
    return read_json(path) if path.exists() else {"cells": {}}


def matrix(cwd: Path) -> dict[str, dict[str, Any]]:
    """The rows of the matrix of evidence, by cell."""
    return {row["cell"]: row for row in read_json(cwd / OUT / "evidence_matrix.json")["cells"]}


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
