"""Sweeps that run under torchrun themselves, and plain `aorta run` without a recipe."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.host.support import Sweep, cell, read_json, workload_recipe
from tests.support import BIN, Ran, records, run, summary

pytestmark = pytest.mark.sweep


def test_rank_0_holds_the_evidence_of_both_ranks(tmp_path: Path) -> None:
    cells = [cell("baseline", trials=2), cell("bare", "no_collectors")]
    recipe = workload_recipe(tmp_path / "r.yaml", cells=cells)
    aorta = ["sweep", "run", "--recipe", str(recipe), "--collect", "layer_numerics", "--output", "out"]
    ran = run(["torchrun", "--standalone", "--nproc_per_node=2", str(BIN / "aorta"), *aorta], tmp_path).ok()
    (matrix,) = (tmp_path / "out").glob("*/*/*/matrix.json")
    sweep = Sweep(ran, matrix.parent, "workload")

    for trial in (0, 1):
        receipt = sweep.receipt("baseline", trial)
        assert receipt["verdict"] == "captured", receipt["reason"]
        assert receipt["metrics"]["layer_numerics_ranks"] == 2
        both = [summary(sweep.artifacts("baseline", trial), rank) for rank in (0, 1)]
        assert [content["rank"] for content in both] == [0, 1]
        assert {content["world_size"] for content in both} == {2}
        assert {content["status"] for content in both} == {"complete"}
        assert len({content["pid"] for content in both}) == 2
        assert sorted(content["run_id"] for content in both) == sorted(receipt["run_ids"])
        for rank, content in enumerate(both):
            lines = records(sweep.artifacts("baseline", trial) / f"layers_rank{rank}.jsonl")
            assert len(lines) == content["records_written"]
    assert sweep.receipt("bare")["verdict"] == "off"
    assert sweep.cell("baseline")["metrics_summary"]["layer_numerics_ranks"]["mean"] == 2
    # One table, from the rank that owns the results.
    assert ran.out.count("Evidence\n") == 1
    run(["aorta-collectors", "verify", str(sweep.run_dir)], tmp_path).ok()


def _aorta_run(tmp_path: Path, workload: str) -> Ran:
    words = ["--workload", workload, "--steps", "3", "--collect", "layer_numerics", "--results-dir", "results"]
    return run(["aorta", "run", *words], tmp_path)


def test_aorta_run_captures_without_a_recipe(tmp_path: Path) -> None:
    _aorta_run(tmp_path, "inference").ok()
    directory = tmp_path / "results" / "inference"
    receipt = read_json(directory / "receipt_d0_m0_t0_layer_numerics.json")
    assert receipt["verdict"] == "captured", receipt["reason"]
    assert receipt["cell"] is None
    content = summary(directory / "trial_d0_m0_t0" / "layer_numerics")
    assert content["run_id"] in receipt["run_ids"]
    trial = read_json(directory / "trial_d0_m0_t0.json")
    assert trial["result"]["metrics"]["layer_numerics_modules"] == content["watched_count"]
    verified = run(["aorta-collectors", "verify", "results"], tmp_path).ok()
    assert "1 of 1 requests satisfied" in verified.out


def test_a_trial_that_fails_in_setup_stays_a_setup_failure(tmp_path: Path) -> None:
    """`training` shards with FSDP unless it is told otherwise, which needs a GPU."""
    import torch

    if torch.cuda.is_available():
        pytest.skip("on a GPU this run succeeds")
    ran = _aorta_run(tmp_path, "training")
    assert ran.code == 1
    directory = tmp_path / "results" / "training"
    trial = read_json(directory / "trial_d0_m0_t0.json")
    assert trial["exit_status"] == "workload_setup_failed"
    assert trial["result"]["passed"] is False
    receipt = read_json(directory / "receipt_d0_m0_t0_layer_numerics.json")
    assert receipt["verdict"] in ("missing", "unattached", "incomplete")
    assert run(["aorta-collectors", "verify", "results"], tmp_path).code == 1
