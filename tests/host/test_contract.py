"""Everything a `collect:` block can ask for is there after a sweep of either flow, or the sweep says that it is not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.host.support import (
    Sweep,
    cell,
    mitigations,
    once,
    probe_recipe,
    sweep_command,
    sweep_workload,
    workload_recipe,
)
from tests.support import ROOT, Ran, records, run, summary

pytestmark = pytest.mark.sweep

PIPELINE = ["python", str(ROOT / "recipes" / "pipeline_corruption.py")]
#: A loop without a pipeline. CALLED says how its batch is handed over and what is wrong with it.
LOOP = """
import os
import torch
from torch import nn

torch.manual_seed(0)
called = os.environ.get("CALLED", "positional")


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 1)

    def forward(self, batch):
        return self.second(self.first(batch["renamed" if called == "renamed" else "features"]))


model = Model()
for step in range(1, 4):
    features = torch.rand(2, 4)
    if step == 2:
        features[0, 3] = 61.0
    batch = {"renamed" if called == "renamed" else "features": features}
    loss = (model(batch=batch) if called == "keyword" else model(batch)).square().mean()
    loss.backward()
    print(step, loss.item(), flush=True)
"""
EVERY_STEP = {"layer_numerics": {"NANLOG_SAMPLE_EVERY": "1"}}
DETAIL = ["addr", "bad_values", "dump_tensor", "locate"]


def options(spec: dict[str, Any], **variables: str) -> dict[str, dict[str, str]]:
    return {"layer_numerics": {"NANLOG_SPEC": json.dumps(spec), **variables}}


def followed(tensor: str, **entry: Any) -> dict[str, Any]:
    return {"follow": [{"tensor": tensor, **entry}], "sample_every": 1}


def verified(sweep: Sweep) -> Ran:
    return run(["aorta-collectors", "verify", str(sweep.run_dir)], sweep.run_dir.parent)


def lines(sweep: Sweep, name: str = "none", **fields: Any) -> list[dict[str, Any]]:
    """The records of the cell's first trial that have these values."""
    found = records(sweep.artifacts(name) / "layers_rank0.jsonl")
    return [line for line in found if all(line.get(key) == value for key, value in fields.items())]


BLOCKS: dict[str, dict[str, dict[str, str]]] = {
    "flat": {"layer_numerics": {"NANLOG_CHANNELS": "act", "NANLOG_WATCH_NAMES": "head", "NANLOG_SAMPLE_EVERY": "1"}},
    "watching": options({"watch": [{"scope": {"names": ["mlp"]}, "tensors": ["input"]}], "sample_every": 1}),
    # Tokens are numbers from 0 to 63.
    "following": options(followed("input_ids", pipeline=False, scope={"types": ["Linear"]}, bounds=[0, 30])),
    "staged": options(followed("input_ids", stages=True)),
    "misnamed": options(followed("input_idz", pipeline=False, scope={"types": ["Linear"]})),
}


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    """A workload's cells, each with a request of its own."""

    def build(directory: Path) -> Sweep:
        rows = [cell("inherited"), *(cell(name, collect=block) for name, block in BLOCKS.items())]
        rows.append(cell("unasked", collect=[]))
        return sweep_workload(directory, workload_recipe(directory / "r.yaml", cells=rows, collect=EVERY_STEP))

    return once(tmp_path_factory, "contract_cells", build)


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    """Followed through torchrec's pipeline, with all detail. The cells differ in where a batch goes bad."""

    def build(directory: Path) -> Sweep:
        file = mitigations(directory / "m.json", {"wait": {"CORRUPT": "wait"}})
        spec = followed("embedding_features", stages=True, bounds=[0, 60])
        spec["follow"].append({"tensor": "sparse", "stages": True})
        collect = options({**spec, "diagnostics": DETAIL}, NANLOG_SPARSE="1")
        recipe = probe_recipe(directory / "r.yaml", ["none", "wait", "no_collectors"], collect=collect)
        return sweep_command(directory, recipe, PIPELINE, "--mitigations-file", str(file))

    return once(tmp_path_factory, "contract_pipeline", build)


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    """A command without a pipeline; the cells differ in how it hands over its batch."""

    def build(directory: Path) -> Sweep:
        (directory / "loop.py").write_text(LOOP)
        ways = ["keyword", "renamed"]
        file = mitigations(directory / "m.json", {way: {"CALLED": way} for way in ways})
        follow = followed("features", pipeline=False, scope={"types": ["Linear"]}, bounds=[0, 60])
        recipe = probe_recipe(directory / "r.yaml", ["none", *ways], collect=options(follow))
        return sweep_command(directory, recipe, ["python", "loop.py"], "--mitigations-file", str(file))

    return once(tmp_path_factory, "contract_loop", build)


class TestCellsOfAWorkload:
    @pytest.mark.parametrize("name", ["inherited", "flat", "watching", "following"])
    def test_a_cell_is_captured_as_it_asked(self, cells: Sweep, name: str) -> None:
        receipt = cells.receipt(name)
        assert receipt["verdict"] == "captured", receipt["reason"]
        assert receipt["options"] == BLOCKS.get(name, EVERY_STEP)["layer_numerics"]

    def test_what_was_recorded_is_what_each_cell_asked_for(self, cells: Sweep) -> None:
        recorded = {
            name: {(line["layer_name"], line["role"]) for line in lines(cells, name)}
            for name in ("inherited", "flat", "watching", "following")
        }
        layers = ("module.mlp.0", "module.mlp.2", "module.head")
        assert recorded["inherited"] == {(layer, role) for layer in layers for role in ("act", "igrad")}
        assert recorded["flat"] == {("module.head", "act")}
        # The container and all four in it.
        assert recorded["watching"] == {(f"module.mlp{part}", "input") for part in ("", ".0", ".1", ".2", ".3")}
        assert recorded["following"] == {("input_ids", "track")}

    def test_a_follow_reads_the_batch_where_it_enters_and_at_each_layer(self, cells: Sweep) -> None:
        found = lines(cells, "following", step=2)
        assert [line.get("checkpoint") for line in found] == [None, "module.mlp.0", "module.mlp.2", "module.head"]
        assert {(line["phase"], line["batch_id"]) for line in found} == {("forward", 2)}

    def test_a_range_shows_in_the_receipt_and_in_the_matrix(self, cells: Sweep) -> None:
        first = summary(cells.artifacts("following"))["first_oob"]
        metrics = cells.receipt("following")["metrics"]
        assert (first["step"], first["layer"], first["phase"]) == (1, "input_ids", "forward")
        assert metrics["layer_numerics_first_oob_step"] == 1
        assert metrics["layer_numerics_first_oob_layer"] == "input_ids"
        assert cells.cell("following")["metrics_summary"]["layer_numerics_first_oob_step"]["mean"] == 1
        assert "layer_numerics_first_oob_step" not in cells.cell("inherited")["metrics_summary"]

    def test_a_stage_that_no_pipeline_has_is_misapplied_with_advice(self, cells: Sweep) -> None:
        receipt = cells.receipt("staged")
        assert receipt["verdict"] == "misapplied"
        assert "TrainPipelineSparseDist" in receipt["reason"]
        assert "pipeline: false" in receipt["reason"]
        assert receipt["reason"] in cells.ran.out

    def test_a_name_that_the_batch_does_not_have_is_misapplied_and_named(self, cells: Sweep) -> None:
        receipt = cells.receipt("misnamed")
        assert receipt["verdict"] == "misapplied"
        assert "follow[0].tensor" in receipt["reason"]
        assert "'input_idz'" in receipt["reason"]

    def test_an_empty_block_asks_for_nothing(self, cells: Sweep) -> None:
        assert not list(cells.cell_dir("unasked").glob("receipt_*"))
        assert not cells.artifacts("unasked").exists()

    def test_the_sweep_and_verify_name_the_same_cells(self, cells: Sweep) -> None:
        assert cells.ran.code == 1
        assert "2 of 6 requests for evidence not satisfied (cells: staged, misnamed)" in cells.ran.err
        again = verified(cells)
        assert again.code == 1
        assert "4 of 6 requests satisfied" in again.out

    def test_the_loss_is_the_same_in_every_cell(self, cells: Sweep) -> None:
        names = ["inherited", "following", "staged", "misnamed", "unasked"]
        assert len({cells.trial(name)["result"]["metrics"]["final_loss"] for name in names}) == 1


def test_the_command_line_asks_in_every_cell_of_a_workload_whatever_the_cells_say(tmp_path: Path) -> None:
    cells = [cell("asked", collect=BLOCKS["staged"]), cell("unasked", collect=[])]
    collect = {"layer_numerics": {"NANLOG_SAMPLE_EVERY": "1", "NANLOG_CHANNELS": "weight"}}
    recipe = workload_recipe(tmp_path / "r.yaml", steps=1, cells=cells, collect=collect)
    sweep = sweep_workload(tmp_path, recipe, "--collect", "layer_numerics")
    sweep.ran.ok()
    for name in ("asked", "unasked"):
        assert sweep.receipt(name)["verdict"] == "captured"
        assert sweep.receipt(name)["options"] == collect["layer_numerics"]
        assert {line["role"] for line in lines(sweep, name)} == {"weight"}
    assert "2 of 2 requests satisfied" in verified(sweep).ok().out


class TestThePipelineOfACommand:
    def test_every_cell_is_captured_and_verify_agrees(self, pipeline: Sweep) -> None:
        pipeline.ran.ok()
        verdicts = {name: pipeline.receipt(name)["verdict"] for name in ("none", "wait", "no_collectors")}
        assert verdicts == {"none": "captured", "wait": "captured", "no_collectors": "off"}
        assert "3 of 3 requests satisfied" in verified(pipeline).ok().out

    @pytest.mark.parametrize(
        ("name", "bad"),
        [("none", ["copy", "sparse_start", "sparse_wait", "forward"]), ("wait", ["sparse_wait", "forward"])],
    )
    def test_the_stages_say_where_the_batch_went_bad(self, pipeline: Sweep, name: str, bad: list[str]) -> None:
        seventh = lines(pipeline, name, layer_name="embedding_features", batch_id=7)
        assert [line["phase"] for line in seventh] == ["copy", "sparse_start", "sparse_wait", "forward"]
        assert [line["phase"] for line in seventh if line["oob_count"]] == bad
        first = summary(pipeline.artifacts(name))["first_oob"]
        assert (first["phase"], first["batch_id"]) == (bad[0], 7)
        assert pipeline.receipt(name)["metrics"]["layer_numerics_first_oob_step"] == first["step"]
        assert pipeline.receipt(name)["metrics"]["layer_numerics_first_oob_layer"] == "embedding_features"

    def test_a_bad_record_says_which_elements_and_where_in_memory(self, pipeline: Sweep) -> None:
        bad = next(line for line in lines(pipeline) if line["oob_count"])
        assert bad["bad_rows"] == 1
        assert (bad["first_bad_row"], bad["first_bad_col"], bad["first_bad_value"]) == (2, 3, 1e6)
        assert int(bad["storage_ptr"], 16) <= int(bad["data_ptr"], 16)
        assert bad["storage_nbytes"] >= bad["numel"] * 4

    def test_the_bad_tensor_lies_beside_the_records_and_in_the_receipt(self, pipeline: Sweep) -> None:
        (dump,) = pipeline.artifacts().glob("*.pt")
        tensor = torch.load(dump, weights_only=True)
        assert tensor.shape == (4, 16)
        assert tensor[2, 3] == 1e6
        assert pipeline.receipt()["files"][dump.name] == dump.stat().st_size

    def test_jagged_tensors_say_how_they_are_laid_out(self, pipeline: Sweep) -> None:
        jagged = lines(pipeline, role="sparse")
        assert {line["layer_name"] for line in jagged} == {"sparse"}
        assert {line["phase"] for line in jagged} == {"copy", "sparse_start", "sparse_wait", "forward"}
        assert {(line["sparse_num_keys"], line["sparse_num_bags"]) for line in jagged} == {(1, 4)}

    def test_the_command_prints_what_it_prints_uninstrumented(self, pipeline: Sweep) -> None:
        assert pipeline.stdout("none") == pipeline.stdout("no_collectors")

    @pytest.mark.parametrize("counted", [False, True], ids=["records alone", "with the summary's count"])
    def test_verify_notices_records_that_were_taken_out(self, pipeline: Sweep, counted: bool, tmp_path: Path) -> None:
        copy = Sweep(pipeline.ran, Path(shutil.copytree(pipeline.run_dir, tmp_path / "run")), pipeline.flow)
        verified(copy).ok()
        path = copy.artifacts() / "layers_rank0.jsonl"
        kept = [line for line in path.read_text().splitlines(keepends=True) if '"phase": "copy"' not in line]
        path.write_text("".join(kept))
        if counted:
            content = {**summary(copy.artifacts()), "records_written": len(kept)}
            (copy.artifacts() / "summary_rank0.json").write_text(json.dumps(content))
        ran = verified(copy)
        assert ran.code == 1
        assert "2 of 3 requests satisfied" in ran.out
        assert "invalid" in ran.out


class TestALoopWithoutAPipeline:
    @pytest.mark.parametrize("name", ["none", "keyword"])
    def test_a_batch_is_followed_however_it_is_handed_over(self, loop: Sweep, name: str) -> None:
        receipt = loop.receipt(name)
        assert receipt["verdict"] == "captured", receipt["reason"]
        assert [line.get("checkpoint") for line in lines(loop, name, step=1)] == [None, "first", "second"]
        first = summary(loop.artifacts(name))["first_oob"]
        assert (first["step"], first["phase"], first["checkpoint"]) == (2, "forward", None)
        assert receipt["metrics"]["layer_numerics_first_oob_step"] == 2

    def test_a_name_that_the_batch_does_not_have_is_misapplied_and_named(self, loop: Sweep) -> None:
        assert loop.ran.code == 1
        assert "1 of 3 requests for evidence not satisfied (cells: renamed-none)" in loop.ran.err
        receipt = loop.receipt("renamed")
        assert receipt["verdict"] == "misapplied"
        assert "'features'" in receipt["reason"]
        again = verified(loop)
        assert again.code == 1
        assert "'features'" in again.out


def test_the_stock_logger_follows_too(tmp_path: Path) -> None:
    spec = followed("embedding_features", stages=True, bounds=[0, 60])
    collect = {"layer_numerics": {"frontend": "aorta", "NANLOG_SPEC": json.dumps(spec)}}
    sweep = sweep_command(tmp_path, probe_recipe(tmp_path / "r.yaml", collect=collect), PIPELINE)
    sweep.ran.ok()
    assert sweep.receipt()["verdict"] == "captured"
    assert "aorta.instrumentation.layer_numerics" in sweep.command()["argv"]
    first = summary(sweep.artifacts())["first_oob"]
    assert (first["layer"], first["phase"]) == ("embedding_features", "copy")
    assert sweep.receipt()["metrics"]["layer_numerics_first_oob_step"] == first["step"]
    verified(sweep).ok()
