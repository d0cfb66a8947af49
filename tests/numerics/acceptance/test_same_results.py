"""What a program computes is bit for bit the same, observed in any way or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.numerics.acceptance.running import NUMERICS
from tests.numerics.left import Left
from tests.support import PYTHON, ROOT, run

#: Trains with all that training does, and prints each loss, the parameters' and the random states' digests.
PROGRAM = """
import hashlib
import random
import warnings
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from tests.numerics.models import Block, sequence_of_blocks

warnings.filterwarnings("ignore")
torch.manual_seed(0)
random.seed(0)
torch.set_num_threads(1)


class Random(Dataset):
    def __len__(self):
        return 24

    def __getitem__(self, index):
        return torch.randn(6, 16), random.random()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(16, 32)
        self.blocks = nn.ModuleList(Block(32, 0.2) for _ in range(2))
        self.out = nn.Linear(32, 4)

    def forward(self, x):
        x = nn.functional.dropout(self.up(x), 0.1, self.training)
        for block in self.blocks:
            x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)
        return self.out(x)


def told(*values):
    print(*[value.hex() if isinstance(value, float) else value for value in values], flush=True)


def digest(tensors):
    whole = hashlib.sha256()
    for tensor in tensors:
        whole.update(tensor.detach().contiguous().view(torch.uint8).numpy().tobytes())
    return whole.hexdigest()


model = Net()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=3)
loader = DataLoader(Random(), batch_size=4, shuffle=True, num_workers=2)
for epoch in range(3):
    for number, (batch, weights) in enumerate(loader):
        with torch.autocast("cpu", torch.bfloat16):
            loss = (model(batch).square().mean((1, 2)) * weights).mean()
        scaler.scale(loss / 2).backward()
        told("loss", loss.item())
        if number % 2:  # gradients of two batches are accumulated
            scaler.unscale_(optimizer)
            told("norm", nn.utils.clip_grad_norm_(model.parameters(), 0.5).item())
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
    model.eval()
    with torch.no_grad():
        told("eval", model(torch.randn(4, 6, 16)).mean().item())
    model.train()
sample = sequence_of_blocks()
optimizer = torch.optim.SGD(sample.model.parameters(), lr=0.1, momentum=0.9)
for _ in range(14):
    optimizer.zero_grad()
    loss = sample.loss()
    loss.backward()
    optimizer.step()
    told("blocks", loss.item())
told("scale", scaler.get_scale())
told(digest([*model.parameters(), *sample.model.parameters()]))
told(digest([torch.get_rng_state()]), random.random(), torch.rand(1).item())
"""

NUMERICS_OUT = (*NUMERICS, "--dir", "out")
WAYS: dict[str, Sequence[str]] = {
    "basic": NUMERICS_OUT,
    "payload, closely looked at": (
        *(*NUMERICS_OUT, "--trace-level", "payload", "--on-bad", "stop"),
        *("--profile", "deferred", "--cv-threshold", "0.0001"),
    ),
    "immediate": (*NUMERICS_OUT, "--profile", "immediate", "--trace-level", "none", "--escalate", "off"),
    "both collectors": (
        *(*NUMERICS_OUT, "--trace-level", "layer", "--profile", "deferred"),
        *("-m", "aorta_collectors.layer_numerics"),
    ),
}


def computed(cwd: Path, launcher: Sequence[str]) -> list[str]:
    cwd.mkdir(exist_ok=True)
    (cwd / "program.py").write_text(PROGRAM)
    return run([*launcher, "program.py"], cwd, {"PYTHONPATH": str(ROOT)}).ok().out.splitlines()


@pytest.fixture(scope="module")
def unobserved(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return computed(tmp_path_factory.mktemp("unobserved"), [PYTHON])


@pytest.mark.parametrize("way", WAYS)
def test_the_results_are_the_same(unobserved: list[str], way: str, tmp_path: Path) -> None:
    assert len(unobserved) == 18 + 9 + 3 + 14 + 1 + 2
    assert computed(tmp_path, WAYS[way]) == unobserved
    summary = Left(tmp_path / "out").summary
    assert summary["hook_errors"] == 0, summary["first_hook_error"]
    assert summary["steps_seen"] > 14
    if "looked" in way:
        assert summary["escalations"]["taken"] > 0
        assert summary["payload"]["tensors"] > 0
    if way == "both collectors":
        assert (tmp_path / "nan_logger_out" / "summary_rank0.json").exists()
