"""A NaN that is planted in a run stops the line where it was planted, whichever way it got there."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from aorta_collectors.numerics.names import EXIT_STOPPED
from tests.numerics.acceptance.running import armed

#: Four blocks; in step 3 one of them goes wrong as the argument says.
PROGRAM = """
import sys
import torch
from torch import nn
from tests.numerics.models import Block

torch.manual_seed(0)
torch.set_num_threads(1)
where = sys.argv[1]
step = 0


class SpoilGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad * float("nan") if step == 3 else grad


class Spoiling(nn.Module):
    def __init__(self, direction):
        super().__init__()
        self.direction = direction

    def forward(self, x):
        if self.direction == "backward":
            return SpoilGradient.apply(x)
        return x * float("nan") if step == 3 and self.direction == "forward" else x * 1.0


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(8, 32)
        self.blocks = nn.ModuleList(Block(32) for _ in range(4))
        self.spoiling = Spoiling(where)
        self.head = nn.Linear(32, 8)

    def forward(self, x):
        x = self.embed(x)
        for number, block in enumerate(self.blocks):
            x = block(x)
            if number == 1:
                x = self.spoiling(x)
        return self.head(x)


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(1, 6):
    given = torch.randn(2, 4, 8)
    if step == 3:
        if where == "data":
            given[1, 2, 3] = float("nan")
        elif where == "parameter":
            with torch.no_grad():
                model.blocks[2].up.weight[5, 7] = float("inf")
    optimizer.zero_grad()
    loss = model(given).square().mean()
    try:
        loss.backward()
    except BaseException:
        print("backward has raised")
        raise
    optimizer.step()
    print("step", step, flush=True)
"""


class Told(NamedTuple):
    layer: str
    direction: str
    cause: str


WHERE = {
    "forward": Told("spoiling", "forward", ""),
    "backward": Told("spoiling", "backward", ""),
    "parameter": Told("blocks.2.up", "forward", "parameter"),
    "data": Told("embed", "forward", "data"),
}


@pytest.mark.parametrize("where", WHERE)
def test_the_line_stops_where_it_was_planted(where: str, tmp_path: Path) -> None:
    ran, left = armed(tmp_path, PROGRAM, "--trace-level", "layer", "--on-bad", "stop", program=[where])
    assert ran.code == EXIT_STOPPED == 86
    assert [line for line in ran.out.splitlines() if line.startswith("step")] == ["step 1", "step 2"]
    told = left.summary["stopped"]
    expected = WHERE[where]
    assert (told["layer"], told["direction"], told["step"]) == (expected.layer, expected.direction, 3)
    assert left.summary["status"] == "complete"
    assert left.summary["hook_errors"] == 0
    assert "step 3" in ran.err
    assert expected.layer in ran.err
    assert told["causes"]
    assert expected.cause in told["causes"][0]["kind"]
    assert "Traceback" not in ran.err
    last = left.lines("stats")[-1]
    assert last["nan_count"] + last["inf_count"] > 0
    before = [line for line in left.lines("stats")[:-1] if line["nan_count"] or line["inf_count"]]
    assert before == []


def test_recorded_only_it_goes_on(tmp_path: Path) -> None:
    ran, left = armed(tmp_path, PROGRAM, "--trace-level", "layer", program=["forward"])
    ran.ok()
    summary = left.summary
    assert (summary["steps_seen"], summary["stopped"]) == (5, None)
    assert (summary["first_bad"]["step"], summary["first_bad"]["layer"]) == (3, "spoiling")
    losses: list[Any] = [line["loss"] for line in left.lines("steps")]
    assert torch.isfinite(torch.tensor(losses[:2])).all()
    assert losses[2:] == ["nan", "nan", "nan"]
