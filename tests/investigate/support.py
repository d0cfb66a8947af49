"""Investigations for the tests: declared through the functions, or made and run by the installed command."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aorta_collectors.investigate.declaring import Asked, Declared, declare
from aorta_collectors.investigate.design import Design
from tests.support import ROOT, Ran, run

OURS = "aorta-collectors"
#: This package's own work tree is being worked on while the tests run; nobody compares revisions of it there.
OUTSIDE_GIT = {"GIT_CEILING_DIRECTORIES": str(ROOT)}

#: Two layers, three steps; --scale plants a difference, CODE an exit code.
PROGRAM = """
import argparse, os, sys
import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--scale", type=float, default=1.0)
args = parser.parse_args()
torch.manual_seed(int(os.environ.get("INVESTIGATION_SEED", "0")))
model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
with torch.no_grad():
    model[2].weight *= args.scale
for step in range(2):
    loss = model(torch.randn(2, 4)).square().mean()
    loss.backward()
    print("loss", loss.item(), flush=True)
print("seed", os.environ.get("INVESTIGATION_SEED"), os.environ.get("PYTHONHASHSEED"))
print("last words", file=sys.stderr)
sys.exit(int(os.environ.get("CODE", "0")))
"""


def declared(root: Path, tmp_path: Path, **changed: Any) -> Declared:
    """An investigation of a program in `tmp_path`; everything can be changed."""
    (tmp_path / "train.py").write_text(PROGRAM)
    kind = changed.pop("kind", "finite")
    design = changed.pop("design", Design.of(kind))
    commands: Mapping[str, str] = {"baseline": "python train.py", "candidate": "python train.py --scale 2"}
    asked = Asked("Is it so?", "they agree", kind, design, **{"commands": commands, "cwd": tmp_path, **changed})
    return declare(root, asked)


def investigate(cwd: Path, *words: str, env: Mapping[str, str] | None = None) -> Ran:
    return run([OURS, "investigate", *words], cwd, {**OUTSIDE_GIT, **(env or {})}, timeout=170)


def record(root: Path, name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((root / "runs" / name / "run.json").read_text())
    return loaded
