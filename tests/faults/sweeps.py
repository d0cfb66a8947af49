"""Sweeps that something happens to: a program that can be held at a point of its life, and what is said afterwards."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support import BIN, run

PATIENCE_S = 60.0
EVERY_STEP = {"layer_numerics": {"NANLOG_SAMPLE_EVERY": "1", "NANLOG_FLUSH_SEC": "0"}}

#: Trains five steps and prints the losses; what is in AT_START, AT_3 and AT_END runs in between. Each run leaves a
#: letter in `runs_<CELL>`. At a point of its life that KILL_AT names, as "step 9", it sends itself that signal; with
#: KILL_AFTER, as "1.5 9", it gets it from elsewhere after so many seconds. Where HELD is set, it says in `held_<PID>`
#: that it has come to the point that the file `hold_at` names, and waits there until that is removed.
PROGRAM = """
import atexit, os, subprocess, sys, time
after, _, number = os.environ.get("KILL_AFTER", "").partition(" ")
if after:
    subprocess.Popen(["sh", "-c", f"sleep {after}; kill -{number} {os.getpid()} 2> /dev/null"], stdout=2)
with open(f"runs_{os.environ.get('CELL', '')}", "a") as stream:
    stream.write("x")

def point(name):
    killed_at, _, number = os.environ.get("KILL_AT", "").partition(" ")
    if killed_at == name and os.environ.get("KILL_RANK") == os.environ.get("RANK"):
        os.kill(os.getpid(), int(number))
    if not os.environ.get("HELD") or not os.path.exists("hold_at") or open("hold_at").read() != name:
        return
    mine = f"held_{os.getpid()}"
    with open(mine, "w") as stream:
        stream.write(name)
    while os.path.exists(mine):
        time.sleep(0.01)

atexit.register(point, "exit")  # runs after the collector's own handler, which is registered later
point("start")
exec(os.environ.get("AT_START", ""))
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
point("model")
for step in range(1, 6):
    loss = model(torch.randn(8, 4)).square().mean()
    if step == 3:
        point("step")
        exec(os.environ.get("AT_3", ""))
    loss.backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 0.1 * parameter.grad
            parameter.grad = None
    print(step, loss.item(), flush=True)
    time.sleep(0.2 if after else 0)
exec(os.environ.get("AT_END", ""))
"""
POINTS = ("start", "model", "step", "exit")


@dataclass(frozen=True)
class Verified:
    """What `aorta-collectors verify` says.

    Attributes:
        verdicts: By cell; of a cell with several trials the first that does not satisfy.
    """

    code: int
    findings: list[dict[str, Any]]

    @property
    def verdicts(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for finding in sorted(self.findings, key=lambda finding: bool(finding["satisfied"])):
            found.setdefault(finding["cell"], finding["verdict"])
        return found

    def reason(self, cell: str) -> str:
        reasons = [finding["reason"] for finding in self.findings if finding["cell"] == cell]
        return "; ".join(reasons)


def verified(run_dir: Path, cwd: Path) -> Verified:
    """Never a traceback, whatever the directory looks like."""
    ran = run(["aorta-collectors", "verify", str(run_dir), "--json"], cwd)
    assert "Traceback" not in ran.err, ran.err
    assert ran.code in (0, 1), ran.err
    return Verified(ran.code, json.loads(ran.out) if ran.out.strip() else [])


@contextmanager
def started(argv: list[str], cwd: Path, env: Mapping[str, str] | None = None) -> Iterator[subprocess.Popen[str]]:
    """A command that goes on meanwhile; its output is in `command.log` of its directory."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("NANLOG_", "AORTA_"))}
    inherited |= {"PATH": f"{BIN}{os.pathsep}{inherited.get('PATH', '')}", "OMP_NUM_THREADS": "1", **(env or {})}
    with (cwd / "command.log").open("w") as log:
        process = subprocess.Popen(
            argv, cwd=cwd, env=inherited, stdin=subprocess.DEVNULL, stdout=log, stderr=log, text=True
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
            process.wait(PATIENCE_S)


def until(condition: Callable[[], Any], what: str, during: subprocess.Popen[str] | None = None) -> Any:
    """Wait for something to be true, at most as long as a process goes on, and return it."""
    end = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        assert during is None or during.poll() is None, f"{what}: the sweep has ended"
        assert time.monotonic() < end, f"{what}: not within {PATIENCE_S:.0f} s"
        time.sleep(0.01)
    return found


def held(cwd: Path) -> list[int]:
    """The processes that wait at their point."""
    return [int(path.name.removeprefix("held_")) for path in cwd.glob("held_*") if path.read_text()]


def let_go(cwd: Path, pid: int) -> None:
    (cwd / f"held_{pid}").unlink()


def kill_session(pid: int) -> list[int]:
    """End all processes of the session that `pid` leads, as an operator would; returns which there were."""
    members = session(pid)
    for member in members:
        os.kill(member, signal.SIGKILL)
    return members


def session(leader: int) -> list[int]:
    """The processes of a session that are no zombies."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, of_session = path.read_text().rpartition(")")[2].split()[:4]
        except (OSError, ValueError):
            continue
        if int(of_session) == leader and state != "Z":
            found.append(int(path.parent.name))
    return found


def moments(seed: int, longest_s: float) -> Iterator[float]:
    """Seconds to wait, drawn at random and always the same."""
    draw = random.Random(seed)
    while True:
        yield draw.uniform(0.0, longest_s)
