"""The host's own `inference` workload, in a real sweep with `collect: numerics`."""

from __future__ import annotations

from pathlib import Path

import pytest

from aorta_collectors.schema_check import first_error
from tests.host.support import cell, sweep_workload, workload_recipe
from tests.numerics.acceptance.running import Tree, follow_one_another
from tests.numerics.left import Left

pytestmark = pytest.mark.sweep

TRANSFORMER = {
    "device": "cpu",
    "dtype": "float32",
    "request": {"batch_size": 2, "prompt_len": 8, "generate_tokens": 3},
    "model": {
        "kind": "decoder_transformer",
        "hidden_size": 32,
        "num_layers": 2,
        "num_heads": 4,
        "ffn_size": 64,
        "vocab_size": 64,
    },
}


def test_inference_inside_the_host(tmp_path: Path) -> None:
    cells = [cell("baseline"), cell("bare", "no_collectors")]
    collect = {"numerics": {"trace": "layer", "profile": "deferred", "escalate": "off"}}
    content = {"steps": 2, "cells": cells, "collect": collect, "workload_config": TRANSFORMER}
    sweep = sweep_workload(tmp_path, workload_recipe(tmp_path / "r.yaml", "inference", **content))
    sweep.ran.ok()
    receipt = sweep.receipt("baseline", collector="numerics")
    assert receipt["verdict"] == "captured", receipt["reason"]
    assert first_error("receipt", receipt) is None
    assert sweep.receipt("bare", collector="numerics")["verdict"] == "off"
    left = Left(sweep.artifacts("baseline", collector="numerics"))
    summary = left.summary
    assert summary["hook_errors"] == 0, summary["first_hook_error"]
    assert summary["optimizer_steps"] == 0
    lines = left.lines("steps")
    assert len(lines) == summary["steps_seen"] >= 2
    assert {line["kind"] for line in lines} == {"inference"}
    tree = Tree(left.lines("spans"))
    tree.assert_nested()
    blocks = summary["anatomy"]["blocks"]
    assert len(blocks) == 2
    for step in range(1, summary["steps_seen"] + 1):
        assert [span["layer"] for span in tree.named("TRANSFORMER_BLOCK", "forward", step)] == blocks
        names = ("EMBED", "TRANSFORMER_BLOCK", "NORM")  # its head is no module, but a product with the embedding
        steps = [span for name in names for span in tree.named(name, "forward", step)]
        assert [span["name"] for span in steps] == ["EMBED", "TRANSFORMER_BLOCK", "TRANSFORMER_BLOCK", "NORM"]
        assert follow_one_another(steps)
    assert {brick["layer"] for brick in summary["bricks"]} >= {*blocks, "embed", "final_norm"}
    assert all(brick["flops"] is not None for brick in summary["bricks"])
