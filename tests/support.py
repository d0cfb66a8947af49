"""What the tests share: running commands, reading artifacts, and small programs to observe."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
PYTHON = str(BIN / "python")


@dataclass(frozen=True)
class Ran:
    """A finished command."""

    code: int
    out: str
    err: str

    def ok(self) -> Ran:
        assert self.code == 0, f"exit {self.code}\n{self.out}\n{self.err}"
        return self


def interruptible() -> None:
    """For preexec_fn: SIGINT does what it does by default, also where the tests run in the background of a shell."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def run(argv: list[str], cwd: Path, env: Mapping[str, str] | None = None, timeout: float = 120) -> Ran:
    """Run a command of this environment (python, torchrun, aorta, aorta-collectors are found first on PATH)."""
    ours = ("NANLOG_", "NUMERICS_", "TENSORS_", "MEMORY_", "AORTA_", "PYTHONPATH", "TRACEPARENT", "TRACESTATE")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    inherited["PATH"] = f"{BIN}{os.pathsep}{inherited.get('PATH', '')}"
    inherited["OMP_NUM_THREADS"] = "1"
    inherited["AORTA_COLLECTORS_REPORT"] = "off"  # half a second of each sweep; tests/report has sweeps that write it
    done = subprocess.run(
        argv,
        cwd=cwd,
        env={**inherited, **(env or {})},
        capture_output=True,
        text=True,
        timeout=timeout,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def records(path: Path) -> list[dict[str, Any]]:
    """The lines of a JSONL file."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def summary(directory: Path, rank: int = 0) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((directory / f"summary_rank{rank}.json").read_text())
    return loaded


#: A plain nn.Module training script: --lr 2 makes it grow, --steps bounds it, --mode says how it misbehaves. It
#: descends by hand: an optimizer of torch loads torch's compiler, which takes as long as torch itself.
TRAIN = """
import argparse, os, shutil, signal, sys
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--steps", type=int, default=5)
parser.add_argument("--mode", default="train")
args = parser.parse_args()
if args.mode == "exit-early":
    sys.exit(0)
import torch
from torch import nn
if args.mode == "no-model":
    print("nothing to do")
    sys.exit(0)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
if args.mode == "never-called":
    sys.exit(0)
directory = os.environ.get("NANLOG_DIR", "")
for step in range(1, args.steps + 1):
    loss = model(torch.randn(8, 4)).square().mean()
    if step == 3:
        if args.mode == "raise":
            raise RuntimeError("boom")
        if args.mode == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if args.mode == "exit-hard":
            os._exit(0)
        if args.mode == "delete":
            shutil.rmtree(directory)
        if args.mode == "replace":
            shutil.rmtree(directory)
            os.mkdir(directory)
        if args.mode == "link":
            shutil.rmtree(directory)
            os.makedirs("elsewhere", exist_ok=True)
            os.symlink(os.path.abspath("elsewhere"), directory)
    loss.backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= args.lr * parameter.grad
            parameter.grad = None
    print(step, loss.item(), flush=True)
"""
