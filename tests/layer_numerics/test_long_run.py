"""A run of any length needs no more memory than a short one, and fills no disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support import PYTHON, records, run, summary

#: Runs `step` (code) STEPS times, and says how much memory the process has, in MB, after a fifth and at the end.
PROGRAM = """
import gc, json, sys
import torch
from torch import nn
torch.set_num_threads(1)

def memory():
    gc.collect()
    with open("/proc/self/statm") as stream:
        return int(stream.read().split()[1]) * 4096 / 1e6

model = nn.Linear(4, 4)
if "train" in sys.argv[1]:
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
good, bad, empty = torch.ones(2, 4), torch.full((2, 4), float("nan")), torch.ones(0, 4)

def train(model, batch):
    model(batch).sum().backward()
    optimizer.step()
    optimizer.zero_grad()

source, steps = compile(sys.argv[1], "step", "exec"), int(sys.argv[2])
with torch.set_grad_enabled("train" in sys.argv[1]):
    for step in range(1, steps + 1):
        exec(source)
        if step in (steps // 5, steps):
            print(memory())
"""
#: Growth is some 0.2 MB at most. torch itself keeps something of models that come and go.
_MOST_MB, _MOST_MB_OF_NEW_MODELS = 1.5, 4.0

# What a step does, how many there are, and options.
CASES: dict[str, tuple[str, int, dict[str, str]]] = {
    "inference": ("model(good)", 40_000, {}),
    "training": ("train(model, good)", 3_000, {"NANLOG_ORIGIN": "1"}),
    "run-up that nobody asks for": ("model(good)", 6_000, {"NANLOG_PRE_CONTEXT": "100"}),
    "bad in each step": ("model(bad)", 3_000, {"NANLOG_MAX_RECORDS": "1000", "NANLOG_PRE_CONTEXT": "20"}),
    "nothing to read": ("model(empty)", 6_000, {}),
    "another shape in each step": ("model(torch.ones(1 + step, 1, 4))", 3_000, {"NANLOG_SAMPLE_EVERY": "1"}),
    "a new model in each step": ("train(nn.Sequential(nn.Linear(4, 4)), good)", 4_000, {"NANLOG_SAMPLE_EVERY": "1"}),
}


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path, Any]:
    """The name of a case, the directory of its run, and the lines that it printed."""
    code, steps, env = CASES[request.param]
    directory = tmp_path_factory.mktemp("long")
    argv = [PYTHON, "-m", "aorta_collectors.layer_numerics", "-c", PROGRAM, code, str(steps)]
    ran = run(argv, directory, {"NANLOG_DIR": "out", **env}, timeout=300).ok()
    (directory / "err").write_text(ran.err)
    return request.param, directory, [json.loads(line) for line in ran.out.splitlines()]


class TestLongRuns:
    def test_memory_does_not_grow_with_steps(self, case: tuple[str, Path, Any]) -> None:
        name, _, (early, late) = case
        assert late - early < (_MOST_MB_OF_NEW_MODELS if name == "a new model in each step" else _MOST_MB)

    def test_every_step_was_seen_and_nothing_grew_on_disk_or_on_the_screen(self, case: tuple[str, Path, Any]) -> None:
        name, directory, _ = case
        _, steps, env = CASES[name]
        found = summary(directory / "out")
        assert (found["status"], found["steps_seen"], found["hook_errors"]) == ("complete", steps, 0)
        assert (directory / "out" / "summary_rank0.json").stat().st_size < 100_000
        assert len((directory / "err").read_text().splitlines()) < 250
        assert found["overhead"]["steps_measured"] >= steps - 1
        lines = sum(1 for _ in (directory / "out" / "layers_rank0.jsonl").open())
        assert found["records_written"] == lines
        if "NANLOG_SAMPLE_EVERY" not in env and name != "bad in each step":
            assert lines <= 2 * steps // 50


def test_what_the_cap_cuts_is_counted(tmp_path: Path) -> None:
    env = {"NANLOG_DIR": "out", "NANLOG_MAX_RECORDS": "30", "NANLOG_SAMPLE_EVERY": "1"}
    argv = [PYTHON, "-m", "aorta_collectors.layer_numerics", "-c", PROGRAM, "model(bad)", "100"]
    run(argv, tmp_path, env).ok()
    found = summary(tmp_path / "out")
    assert (found["records_written"], found["records_cut"]) == (30, 70)
    assert [record["step"] for record in records(tmp_path / "out" / "layers_rank0.jsonl")] == list(range(1, 31))
