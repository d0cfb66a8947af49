"""The run directories that views are tried on. Each is made once for all tests, by the real command.

| name | what |
|---|---|
| clean | a transformer-like model, one cell, every step of every layer, nothing bad |
| overflow | recipes/dlrm_overflow.yaml: three cells, of which one is not observed |
| pipeline | recipes/pipeline_corruption.yaml, with a NaN written at the copy stage |
| ranks | two ranks of torchrun, of which rank 1 grows and becomes NaN |
| mitigations | recipes/attention_nan.yaml: six cells, of which one has no NaN |
| slow | recipes/slow_attention.yaml: three cells of numerics with profile: deferred |
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.host.support import Sweep, aorta, once, probe_recipe, sweep_command
from tests.support import PYTHON, ROOT

RECIPES = ROOT / "recipes"
#: Every step of every module.
ALL = {"NANLOG_SAMPLE_EVERY": "1", "NANLOG_WATCH_TYPES": "*", "NANLOG_CHANNELS": "act,igrad,weight,wgrad"}

CLEAN = """
import torch
from torch import nn
torch.manual_seed(0)
torch.set_num_threads(1)
layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
model = nn.Sequential(nn.Linear(8, 16), nn.TransformerEncoder(layer, 2), nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(8):
    optimizer.zero_grad()
    model(torch.randn(4, 6, 8)).square().mean().backward()
    optimizer.step()
"""

#: Rank 1 diverges by a factor of some 15 a step, as with a wrong learning rate. The ranks share a barrier alone.
RANKS = """
import torch, torch.distributed as dist
from torch import nn
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model[-1].parameters(), lr=0.01 if rank == 0 else 1.0)
for step in range(40):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
    dist.barrier()
del model, optimizer
dist.destroy_process_group()
"""

NAMES = ("clean", "overflow", "pipeline", "ranks", "mitigations", "slow")


def captured(factory: pytest.TempPathFactory, name: str) -> Path:
    """The run directory of one of NAMES. Nobody may change what is in it."""
    return swept(factory, name).run_dir


def swept(factory: pytest.TempPathFactory, name: str) -> Sweep:
    """The sweep that it is of, with what that printed."""
    return once(factory, f"captured-{name}", lambda cwd: _built(cwd, name))


def _built(cwd: Path, name: str) -> Sweep:
    if name in ("clean", "ranks"):
        (cwd / "train.py").write_text(CLEAN if name == "clean" else RANKS)
        recipe = probe_recipe(cwd / "r.yaml", ticket=f"T-{name}", collect={"layer_numerics": ALL})
        launcher = [PYTHON] if name == "clean" else ["torchrun", "--standalone", "--nproc_per_node=2"]
        sweep = sweep_command(cwd, recipe, [*launcher, "train.py"])
        assert sweep.ran.code == 0, sweep.ran.out + sweep.ran.err
        return Sweep(sweep.ran, cwd / "out" / f"T-{name}", "probe")
    stem = {
        "overflow": "dlrm_overflow",
        "pipeline": "pipeline_corruption",
        "mitigations": "attention_nan",
        "slow": "slow_attention",
    }[name]
    words = ["sweep", "run", "--recipe", str(RECIPES / f"{stem}.yaml"), "--output", "out"]
    bundles = RECIPES / f"{stem}.mitigations.json"
    if bundles.exists():
        words += ["--mitigations-file", str(bundles)]
    env = {"AORTA_COLLECTORS_REPORT": "on"}
    if name == "pipeline":
        env |= {"CORRUPT": "copy", "VALUE": "nan"}
    ran = aorta([*words, "--", PYTHON, str(RECIPES / f"{stem}.py")], cwd, env)
    assert ran.code == 0, ran.out + ran.err
    (run_dir,) = (cwd / "out").glob("DEMO-*")
    return Sweep(ran, run_dir, "probe")
