"""What a process that numerics was armed in left behind, each file held against its schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from aorta_collectors.schema_check import first_error, validator
from tests.support import PYTHON, Ran, records, run

SCHEMAS = {
    "spans": "numerics.span",
    "stats": "numerics.stats",
    "steps": "numerics.step",
    "escalations": "numerics.escalation",
}

#: Prints each step once it is over. What is in AT_3 runs in step 3, between the forward and the backward pass.
TRAIN = """
import ctypes, os, signal, subprocess, sys, threading, time
exec(os.environ.get("AT_START", ""))
import torch
from torch import nn
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
for step in range(1, 6):
    model.zero_grad()
    loss = model(torch.randn(8, 4)).square().mean()
    if step == 3:
        exec(os.environ.get("AT_3", ""))
    loss.backward()
    print(step, flush=True)
"""


class Left:
    """One process's files in a directory."""

    def __init__(self, directory: Path, stem: str = "rank0") -> None:
        self.directory = directory
        self.stem = stem

    @property
    def summary(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((self.directory / f"summary_{self.stem}.json").read_text())
        assert first_error("numerics.summary", content) is None
        return content

    def lines(self, kind: str) -> list[dict[str, Any]]:
        """Of one of the files; to their schema, or the test fails."""
        lines = records(self.directory / f"{kind}_{self.stem}.jsonl")
        faults = [first_error(SCHEMAS[kind], line) for line in lines]
        assert [fault for fault in faults if fault is not None] == []
        assert validator(SCHEMAS[kind]).fits(lines)
        return lines

    @property
    def names(self) -> set[str]:
        return {path.name for path in self.directory.iterdir()} if self.directory.exists() else set()


def train(cwd: Path, at_3: str = "", *options: str, code: str = TRAIN, **env: str) -> Ran:
    """TRAIN below `python -m aorta_collectors.numerics`, which writes to out/."""
    (cwd / "train.py").write_text(code)
    argv = [PYTHON, "-m", "aorta_collectors.numerics", "--dir", "out", *options, "train.py"]
    return run(argv, cwd, {"AT_3": at_3, **env})
