"""`python -m aorta_collectors.memory`: memory that a program takes in one phase shows there, and nowhere else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.memory.left import Left, run_observed

MIB = 1 << 20

#: Takes 8 MB that it keeps in the phase that its last argument names. Nothing that large is ever given back, so that
#: none of it can lie in memory that the process held already.
GROWS = """
import sys
import torch
from torch import nn
from aorta_collectors.memory import point

phase = sys.argv[-1]
kept = []

def keep(where):
    if where == phase:
        kept.append(torch.ones(2 << 20))

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(16, 16), nn.Linear(16, 1)

    def forward(self, x):
        x = self.first(x)
        keep("forward")
        return self.second(x)

class Descent(torch.optim.SGD):
    def step(self, closure=None):
        keep("optimizer")
        return super().step(closure)

torch.manual_seed(0)
model = Model()
optimizer = Descent(model.parameters(), lr=0.1)
for step in range(7):
    optimizer.zero_grad()
    loss = model(torch.randn(8, 16)).square().mean()
    loss.backward()
    optimizer.step()
    keep("between")
    print(loss.item())
point("before sharing")
shared = torch.ones(4 << 20).share_memory_()
point("after sharing")
"""

PHASES = {
    "forward": ("before_forward", "after_forward"),
    "backward": ("after_forward", "after_backward"),
    "optimizer": ("after_backward", "after_step"),
}


@pytest.mark.parametrize("planted", ["forward", "optimizer", "between"])
def test_what_is_kept_in_one_phase_shows_in_that_difference_alone(tmp_path: Path, planted: str) -> None:
    ran = run_observed(tmp_path, GROWS, "--scope", "first,second", arguments=(planted,)).ok()
    assert len(ran.out.splitlines()) == 7
    left = Left(tmp_path / "out")
    for phase, (since, until) in PHASES.items():
        for field in ("rss", "anonymous"):
            grown = left.grown(since, until, field)
            assert (abs(grown - 8 * MIB) if phase == planted else abs(grown)) < MIB / 4, (phase, field, grown)
        assert abs(left.grown(since, until, "shared")) < MIB / 4
    # Closer: not in the layers, but between them.
    inside = left.grown("after_forward:first", "before_forward:second")
    assert (abs(inside - 8 * MIB) if planted == "forward" else abs(inside)) < MIB / 4
    before, after = (line["host"] for line in left.points[-2:])
    assert abs(after["shared"] - before["shared"] - 16 * MIB) < MIB
    growth = left.summary["points"]["after_step"]
    assert abs(growth["last"]["rss"] - growth["first"]["rss"] - 6 * 8 * MIB) < 8 * MIB


#: Rank 1 keeps what its forward pass takes.
RANKS = """
import os
import torch
from torch import nn
import torch.multiprocessing as mp

def work(rank):
    os.environ.update(RANK=str(rank), WORLD_SIZE="2")
    model, kept = nn.Linear(16, 1), []
    for step in range(5):
        model(torch.ones(4, 16)).sum().backward()
        if rank == 1:
            kept.append(torch.ones(2 << 20))

if __name__ == "__main__":
    mp.spawn(work, nprocs=2)
"""


def test_two_ranks_are_two_files_each_and_only_one_of_them_grows(tmp_path: Path) -> None:
    run_observed(tmp_path, RANKS, "--points", "before_forward,after_backward", "--steps", "2-").ok()
    out = tmp_path / "out"
    assert {path.name for path in out.iterdir()} == {
        f"{kind}_rank{rank}.{end}"
        for rank in (0, 1)
        for kind, end in (("summary", "json"), ("memory", "jsonl"), ("growth", "jsonl"))
    }
    held = []
    for rank in (0, 1):
        left = Left(out, f"rank{rank}")
        assert {(line["rank"], line["pid"]) for line in left.points} == {(rank, left.summary["pid"])}
        points = [line for line in left.points if line["name"] == "before_forward"]
        assert [line["step"] for line in points] == [2, 3, 4, 5]
        held.append(points[-1]["host"]["anonymous"] - points[0]["host"]["anonymous"])
    assert abs(held[0]) < MIB
    assert abs(held[1] - 3 * 8 * MIB) < MIB


def test_options_are_checked_and_explained(tmp_path: Path) -> None:
    refused = run_observed(tmp_path, "", "--points", "forward")
    assert refused.code == 2
    assert "--points" in refused.err
    assert "before_forward, after_forward, after_backward, after_step" in refused.err
    refused = run_observed(tmp_path, "", "--steps", "5-3")
    assert (refused.code, "--steps: 5-3 ends before it begins" in refused.err) == (2, True)
    told = run_observed(tmp_path, "", "--help").ok().out
    for option in ("--points", "--scope", "--steps", "--detail", "--stacks", "--dir"):
        assert f"\n  {option}\n" in told
    assert not os.path.exists(tmp_path / "out")
