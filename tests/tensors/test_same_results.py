"""What a program computes is bit for bit the same, observed in any way or not at all; and its evidence is captured."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

from aorta_collectors.api import Verdict
from aorta_collectors.tensors import observe, watch_grad
from tests.numerics.acceptance.test_same_results import PROGRAM
from tests.support import PYTHON, ROOT, run
from tests.tensors.left import ALL_POINTS, Left, armed

TENSORS = (PYTHON, "-m", "aorta_collectors.tensors", "--dir", "out")


def computed(cwd: Path, launcher: Sequence[str]) -> list[str]:
    cwd.mkdir()
    (cwd / "program.py").write_text(PROGRAM)
    return run([*launcher, "program.py"], cwd, {"PYTHONPATH": str(ROOT)}).ok().out.splitlines()


def test_a_program_with_all_that_training_does(tmp_path: Path) -> None:
    raw = {"points": ",".join(ALL_POINTS), "keep": "values", "scope": "*"}
    options = [word for name, value in raw.items() for word in (f"--{name}", value)]
    observed = computed(tmp_path / "observed", [*TENSORS, *options])
    assert observed == computed(tmp_path / "bare", [PYTHON])
    left = Left(tmp_path / "observed" / "out")
    summary = left.summary
    verdict, reason = left.told(raw, run_id=summary["run_id"])
    assert verdict is Verdict.CAPTURED, reason
    assert summary["values"]["tensors"] > 1000
    assert summary["tensors_left_out"] == 0


def test_digests_change_neither_gradients_nor_parameters_nor_random_numbers(tmp_path: Path) -> None:
    def trained() -> list[bytes]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.3), nn.ReLU(inplace=True), nn.Linear(16, 4))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        found = []
        for _ in range(4):
            optimizer.zero_grad()
            hidden = watch_grad(observe(model(torch.randn(4, 8)), name="hidden"), name="hidden")
            hidden.square().mean().backward()
            found += [each.grad.numpy().tobytes() for each in model.parameters() if each.grad is not None]
            optimizer.step()
            found += [each.detach().numpy().tobytes() for each in model.parameters()]
        return [*found, torch.get_rng_state().numpy().tobytes()]

    bare = trained()
    with armed(tmp_path, points=ALL_POINTS, steps=("1-2", "4")) as left:
        assert trained() == bare
    assert {line["step"] for line in left.lines} == {1, 2, 4}


def test_two_runs_leave_the_same_observations(tmp_path: Path) -> None:
    """By name and invocation, whatever else differs; and each says from which states it began."""
    found = []
    for name, seed in (("first", 1), ("again", 1), ("other", 2)):
        with armed(tmp_path / name, points=("after_forward", "after_step")) as left:
            torch.manual_seed(seed)
            random.seed(seed)
            model = nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5))
            for _ in range(3):
                model(torch.randn(2, 4)).sum().backward()
                torch.optim.SGD(model.parameters(), lr=0.1).step()
        found.append(left)
    bits = [{(line["name"], line["invocation"]): line["digest"] for line in left.lines} for left in found]
    assert bits[0] == bits[1]
    assert bits[0].keys() == bits[2].keys()
    assert all(bits[0][key] != bits[2][key] for key in bits[0])
    first, again, other = (left.summary["seeds"]["first_call"] for left in found)
    assert first == again
    assert (first["torch_seed"], other["torch_seed"]) == (1, 2)
    assert {key for key in first if first[key] != other[key]} >= {"torch_seed", "torch_state", "python_state"}
