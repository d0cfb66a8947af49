"""`collect: numerics` in real sweeps: commands, workloads inside the host, beside layer_numerics, and what it lacks."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from aorta_collectors.numerics.names import EXIT_STOPPED
from aorta_collectors.schema_check import first_error
from tests.host.support import Sweep, aorta, cell, once, probe_recipe, sweep_command, sweep_workload, workload_recipe
from tests.support import records, summary

pytestmark = pytest.mark.sweep

#: A transformer in small that descends by hand. With BAD in its environment, a block makes a NaN in step 3.
GPT = """
import os
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn, self.mlp, self.step = nn.Linear(8, 8), nn.Linear(8, 8), 0

    def forward(self, x):
        self.step += 1
        if self.step == 3 and "BAD" in os.environ:
            x = x * float("nan")
        return x + self.mlp(torch.relu(self.attn(x)))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(32, 8)
        self.h = nn.ModuleList(Block() for _ in range(3))
        self.lm_head = nn.Linear(8, 32)

    def forward(self, tokens):
        x = self.wte(tokens)
        for block in self.h:
            x = block(x)
        return self.lm_head(x)


model = GPT()
for step in range(1, 6):
    tokens = torch.randint(0, 32, (2, 8))
    loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
    loss.backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 0.1 * parameter.grad
            parameter.grad = None
    print(step, loss.item(), flush=True)
"""
LAYER = {"trace": "layer", "profile": "deferred"}
STOP = {"trace": "layer", "on_bad": "stop"}
BLOCK = "recipe.collect.numerics"


def _both(directory: Path) -> Sweep:
    (directory / "train.py").write_text(GPT)
    collect = {"numerics": LAYER, "layer_numerics": {"NANLOG_SAMPLE_EVERY": "1"}}
    recipe = probe_recipe(directory / "r.yaml", ["none", "no_collectors"], collect=collect)
    ambient = {"NUMERICS_TRACE": "payload", "NUMERICS_DIR": "elsewhere", "NUMERICS_RUN_ID": "mine"}
    return sweep_command(directory, recipe, ["python", "train.py"], env=ambient)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    """A command that both collectors observe, and that none does."""
    sweep = once(tmp_path_factory, "numerics_both", _both)
    sweep.ran.ok()
    return sweep


class TestACommand:
    def test_both_collectors_have_verified_evidence(self, both: Sweep) -> None:
        for collector in ("numerics", "layer_numerics"):
            receipt = both.receipt(collector=collector)
            assert receipt["verdict"] == "captured", receipt["reason"]
            assert first_error("receipt", receipt) is None
            assert summary(both.artifacts(collector=collector))["steps_seen"] == 5
        assert both.receipt(collector="numerics")["reason"].startswith("12 module(s) over 5 step(s), 1 rank(s)")

    def test_what_it_left_is_what_was_asked_for(self, both: Sweep) -> None:
        directory = both.artifacts(collector="numerics")
        content = summary(directory)
        assert content["config"]["trace"] == "layer"  # whatever the operator's shell says
        assert content["anatomy"]["blocks"] == ["h.0", "h.1", "h.2"]
        steps = records(directory / "steps_rank0.jsonl")
        assert [line["step"] for line in steps] == [1, 2, 3, 4, 5]
        told = [float(line.split()[1]) for line in both.stdout().splitlines()]
        assert [line["loss"] for line in steps] == pytest.approx(told)
        assert {line["layer"] for line in records(directory / "stats_rank0.jsonl")} >= {"wte", "h.1.mlp", "lm_head"}
        assert {brick["layer"] for brick in content["bricks"]} >= {"wte", "h.1", "h.1.mlp", "lm_head"}

    def test_the_program_computes_the_same_without_them(self, both: Sweep) -> None:
        assert both.stdout("no_collectors") == both.stdout()
        assert both.receipt("no_collectors", collector="numerics")["verdict"] == "off"

    def test_its_numbers_reach_the_matrix(self, both: Sweep) -> None:
        metrics = both.cell("none")["metrics_summary"]
        content = summary(both.artifacts(collector="numerics"))
        assert metrics["numerics_steps"]["mean"] == 5
        assert metrics["numerics_best_loss"]["mean"] == content["step_metrics"]["best_loss"]
        # The summary's is that of a histogram.
        assert metrics["numerics_step_ms_p95"]["mean"] == pytest.approx(content["phases"]["step"]["p95_ms"], rel=0.1)
        assert metrics["numerics_tensors_read"]["mean"] == content["tensors_read"] > 0
        assert not [name for name in metrics if name.startswith("numerics_first")]

    def test_a_dry_run_shows_the_launch_and_does_nothing(self, tmp_path: Path) -> None:
        recipe = probe_recipe(
            tmp_path / "r.yaml", collect={"numerics": {"trace": "layer", "steps": "attention,sample"}}
        )
        words = ["sweep", "run", "--recipe", str(recipe), "--dry-run", "--output", "out", "--", "python", "train.py"]
        ran = aorta(words, tmp_path, {"NUMERICS_PROFILE": "immediate"}).ok()
        assert sorted(tmp_path.iterdir()) == [recipe]
        words = shlex.split(ran.out.splitlines()[-1])
        python = words.index("python")
        assert words[:3] == ["env", "-u", "NUMERICS_PROFILE"]
        assert {"NUMERICS_TRACE=layer", "NUMERICS_STEPS=attention,sample"} <= set(words[:python])
        assert words[python:] == ["python", "-m", "aorta_collectors.frontend", "train.py"]

    def test_a_bad_value_stops_the_line_and_stays_reproduced(self, tmp_path: Path) -> None:
        (tmp_path / "train.py").write_text(GPT)
        recipe = probe_recipe(tmp_path / "r.yaml", collect={"numerics": STOP})
        sweep = sweep_command(tmp_path, recipe, ["python", "train.py"], env={"BAD": "1"})
        receipt = sweep.receipt(collector="numerics")
        assert receipt["verdict"] == "captured", receipt["reason"]
        assert "on_bad: stop ended rank 0 in step 3 at h.0" in receipt["reason"]
        command = sweep.command()
        assert (command["verdict"], command["exit_code"]) == ("fail", EXIT_STOPPED)
        metrics = receipt["metrics"]
        found = [metrics[f"numerics_first_nonfinite_{name}"] for name in ("step", "kind", "rank")]
        assert found == [3, "nan", 0]
        assert metrics["numerics_first_bad_layer"].startswith("h.0")

    def test_a_command_that_runs_no_python_does_not_pass(self, tmp_path: Path) -> None:
        recipe = probe_recipe(tmp_path / "r.yaml")
        sweep = sweep_command(tmp_path, recipe, ["sh", "-c", "true"], "--collect", "numerics")
        assert sweep.ran.code == 1
        assert sweep.command()["verdict"] == "error"
        receipt = sweep.receipt(collector="numerics")
        assert receipt["verdict"] == "missing"
        assert "python -m aorta_collectors.numerics" in receipt["reason"]


class TestAWorkload:
    def test_training_inside_the_host(self, tmp_path: Path) -> None:
        cells = [
            cell("baseline"),
            cell("bare", "no_collectors"),
            cell("unmatched", collect={"numerics": {"steps": "no_such_step"}}),
            cell("stopped", workload_config={"optimizer": {"lr": 1e30}}, collect={"numerics": STOP}),
        ]
        recipe = workload_recipe(tmp_path / "r.yaml", cells=cells, collect={"numerics": LAYER})
        sweep = sweep_workload(tmp_path, recipe)
        assert sweep.ran.code == 1  # of a cell that lacks what it asked for
        receipts = {row["name"]: sweep.receipt(row["name"], collector="numerics") for row in cells}
        verdicts = {name: receipt["verdict"] for name, receipt in receipts.items()}
        assert verdicts == {"baseline": "captured", "bare": "off", "unmatched": "misapplied", "stopped": "captured"}
        assert "'no_such_step'" in receipts["unmatched"]["reason"]
        steps = records(sweep.artifacts("baseline", collector="numerics") / "steps_rank0.jsonl")
        assert [(line["step"], line["kind"]) for line in steps] == [(1, "training"), (2, "training"), (3, "training")]
        assert "on_bad: stop ended rank 0" in receipts["stopped"]["reason"]
        trial = sweep.trial("stopped")
        assert (trial["result"]["passed"], trial["exit_status"]) == (False, "workload_failed")
        (detail,) = trial["result"]["failure_details"]
        assert detail["type"] == "WorkloadStopped"


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown option": ({"trase": "layer"}, ".trase: unknown option; did you mean trace?"),
    "an unknown word": (
        {"trace": "verbose"},
        '.trace: must be one of none, basic, layer, payload, got "verbose"',
    ),
    "nothing to look at": ({"steps": " , "}, ".steps: must not be empty"),
    "a rate of none": ({"profile": "deferred", "rate_limit": "0"}, ".rate_limit: must be a number > 0, got 0.0"),
    "a stop without statistics": (
        {"on_bad": "stop"},
        ".on_bad: stop needs the statistics of layers: set trace: layer or payload, not basic",
    ),
    "an address that is none": (
        {"otlp_endpoint": "localhost:4318"},
        ".otlp_endpoint: must be the address of an OTLP/HTTP receiver, such as http://localhost:4318",
    ),
}


@pytest.mark.parametrize(("block", "message"), WRONG.values(), ids=WRONG)
def test_options_that_cannot_be_honoured_fail_the_recipe(block: dict[str, str], message: str, tmp_path: Path) -> None:
    recipe = probe_recipe(tmp_path / "r.yaml", collect={"numerics": block})
    ran = aorta(["sweep", "run", "--recipe", str(recipe), "--output", "out", "--", "python", "x.py"], tmp_path)
    assert ran.code != 0
    assert f"Error: {BLOCK}{message}" in ran.err.splitlines()
    assert not (tmp_path / "out").exists()
