"""Eager against torch.compile with its default compiler, inductor: the one layer that differs is found."""

from __future__ import annotations

from pathlib import Path

from aorta_collectors.analysis.bundles import Bundle, Criterion, bundles_of, compare
from tests.support import PYTHON, run

PROGRAM = """
import sys
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)


class Scaled(nn.Linear):
    def forward(self, x):
        y = super().forward(x)
        return y * 1.001 if torch.compiler.is_compiling() else y


class Block(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(16), kind(16, 16)

    def forward(self, x):
        return x + torch.tanh(self.linear(self.norm(x)))


model = nn.Sequential(Block(nn.Linear), Block(Scaled), Block(nn.Linear), nn.Linear(16, 1))
call = torch.compile(model) if sys.argv[1] == "compiled" else model
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(2):
    optimizer.zero_grad()
    loss = call(torch.randn(8, 16)).pow(2).mean()
    loss.backward()
    optimizer.step()
    print(loss.item())
"""


def observed(cwd: Path, how: str) -> Bundle:
    (cwd / "train.py").write_text(PROGRAM)
    tool = ["-m", "aorta_collectors.tensors", "--keep", "values", "--scope", "*", "--dir", how]
    run([PYTHON, *tool, "train.py", how], cwd, {"TORCHINDUCTOR_CACHE_DIR": str(cwd / "cache")}).ok()
    (bundle,) = bundles_of(cwd / how)
    return bundle


def test_a_layer_that_computes_something_else_when_compiled_is_the_first_divergence(tmp_path: Path) -> None:
    baseline, candidate = observed(tmp_path, "eager"), observed(tmp_path, "compiled")
    found = compare([baseline], [candidate], Criterion())
    assert found.first_divergence is not None
    first = found.first_divergence.pair.either
    assert (first.name, first.invocation, first.step) == ("after_forward:1.linear.output", 0, 1)
    assert found.first_divergence.is_clean
    assert found.counts.missing_in_candidate == found.counts.missing_in_baseline == 0
    assert {observation.name for observation in candidate.observations()} >= {"after_backward:0.linear.output_grad"}
