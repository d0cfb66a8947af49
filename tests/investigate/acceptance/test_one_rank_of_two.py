"""Two ranks under torchrun, of which one changes a parameter behind the other's back."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.investigate.acceptance.asking import answered
from tests.support import run

pytestmark = pytest.mark.sweep

SCRIPT = """
import torch
import torch.distributed as dist
from torch import nn

torch.set_num_threads(1)
dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())
for step in range(3):
    if step == 1 and dist.get_rank() == 1:
        with torch.no_grad():
            model.module[2].weight += 0.01
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
"""
FIRST = "after_step:2.weight, invocation 1 (step 2)"


def test_the_rank_and_the_first_name_are_told(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    command = "torchrun --standalone --nproc_per_node=2 train.py"
    collect = ("--collect", "tensors:keep=values,points=after_backward,after_step")
    found = answered(tmp_path, "values", "--baseline", command, *collect, "--no-observer-effect")

    told = found.conclusion("Ranks 0 and 1 part first")
    assert f"Ranks 0 and 1 part first at {FIRST}" in told
    assert "no majority says which is right" in told
    names = {path.name for path in found.artifacts_of(told)}
    assert names >= {f"{file}_rank{rank}.{end}" for rank in (0, 1) for file, end in (("tensors", "jsonl"),)}

    bundles = found.root / "runs" / "001-baseline-1" / "bundles"
    compared = run(["aorta-collectors", "tensors", "compare", "--ranks", str(bundles)], tmp_path)
    assert compared.code == 3
    assert FIRST in compared.out
