"""A request that was not honoured is no evidence, even where the program ran and files were written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aorta_collectors.api import Expected, Verdict, Verification
from aorta_collectors.evidence.directory import Anchor
from aorta_collectors.layer_numerics.collector import LayerNumerics
from tests.support import PYTHON, Ran, records, run, summary

LOOP = """
import torch
from torch import nn
torch.manual_seed(0)
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(4, 4)
        self.out = nn.Linear(4, 1)
    def forward(self, batch):
        return self.out(self.proj(batch["features"]))
model = Model()
for step in range(3):
    model({"features": torch.rand(2, 4), "label": torch.rand(2)}).sum().backward()
"""


class Trial:
    """The program with a collect: block, and what is made of its artifacts."""

    def __init__(self, directory: Path, block: dict[str, str]) -> None:
        self.directory = directory
        self.block = block
        env = {"NANLOG_DIR": "out", "NANLOG_RUN_ID": "this run", **block}
        self.ran: Ran = run([PYTHON, "-m", "aorta_collectors.layer_numerics", "-c", LOOP], directory, env).ok()
        self.summary: dict[str, Any] = summary(directory / "out")

    def verify(self) -> Verification:
        collector = LayerNumerics()
        options = collector.recall(self.block)
        with Anchor(self.directory).open(self.directory / "out") as artifacts:
            return collector.verify(artifacts, Expected(options, frozenset({"this run"})))


def _spec(**entry: Any) -> dict[str, str]:
    return {"NANLOG_SPEC": json.dumps({"follow": [entry], "sample_every": 1})}


BLOCKS = {"pipeline": False, "scope": {"names": ["proj"]}}


def test_a_tensor_followed_past_a_block_is_captured_and_told(tmp_path: Path) -> None:
    found = Trial(tmp_path, _spec(tensor="features", **BLOCKS)).verify()
    assert found.verdict is Verdict.CAPTURED, found.reason
    assert "features followed past 0 stage(s) and into 3 forward(s)" in found.reason


@pytest.mark.parametrize("from_file", [False, True], ids=["inline", "file"])
@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (
            {"tensor": "fetures", **BLOCKS},
            "follow[0].tensor: no batch had an attribute or key 'fetures'; it had batch[features], batch[label]",
        ),
        (
            {"tensor": "features", "pipeline": False, "scope": {"names": ["no_such"]}},
            "follow[0].scope matches no module: {'names': ['no_such'], 'types': [], 'stride': 1}",
        ),
        ({"tensor": "features", "stages": True}, "follow[0]: no stage of a TrainPipelineSparseDist was passed"),
    ],
    ids=["name", "scope", "stages"],
)
def test_what_was_not_met_is_misapplied(entry: dict[str, Any], reason: str, from_file: bool, tmp_path: Path) -> None:
    block = _spec(**entry)
    if from_file:
        (tmp_path / "spec.json").write_text(block.pop("NANLOG_SPEC"))
        block = {"NANLOG_SPEC_FILE": "spec.json"}
    trial = Trial(tmp_path, block)
    # Wherever and whenever it is verified, the file may be gone.
    (tmp_path / "spec.json").unlink(missing_ok=True)
    found = trial.verify()
    assert found.verdict is Verdict.MISAPPLIED
    assert reason in found.reason
    assert trial.summary["warnings"] or entry.get("stages")


@pytest.mark.parametrize(
    "block",
    [
        {
            "NANLOG_SPEC": json.dumps(
                {"watch": [{"tensors": ["output"]}], "diagnostics": ["moments"], "sample_every": 1}
            )
        },
        {"NANLOG_MOMENTS": "1", "NANLOG_SAMPLE_EVERY": "1"},
    ],
    ids=["spec", "flat"],
)
def test_a_diagnostic_is_in_force_or_the_verdict_says_so(block: dict[str, str], tmp_path: Path) -> None:
    trial = Trial(tmp_path, block)
    assert trial.verify().verdict is Verdict.CAPTURED
    assert trial.summary["config"]["diagnostics"] == ["moments"]
    assert all(record["finite_rms"] > 0 for record in records(tmp_path / "out" / "layers_rank0.jsonl"))
    trial.summary["config"]["diagnostics"] = []
    (tmp_path / "out" / "summary_rank0.json").write_text(json.dumps(trial.summary))
    found = trial.verify()
    assert found.verdict is Verdict.MISAPPLIED
    assert "diagnostics in force is [], asked for ['moments']" in found.reason


def test_flat_variables_are_called_by_their_names(tmp_path: Path) -> None:
    found = Trial(tmp_path, {"NANLOG_PIPELINE": "1"}).verify()
    assert found.verdict is Verdict.MISAPPLIED
    assert "NANLOG_TRACK_ATTR: no batch had an attribute or key 'embedding_features'" in found.reason


@pytest.mark.parametrize(
    ("block", "warning"),
    [
        ({"NANLOG_STAGE_READS": "1"}, "NANLOG_STAGE_READS: no effect without NANLOG_PIPELINE=1"),
        ({"NANLOG_ALLOC_SNAPSHOT": "1"}, "alloc_snapshot is inactive"),
        (
            {"NANLOG_SPEC": '{"watch": [{"tensors": ["output"]}]}', "NANLOG_BOUNDS": "proj:0:1"},
            "NANLOG_BOUNDS",
        ),
    ],
    ids=["no effect", "not possible here", "overruled by the spec"],
)
def test_what_had_no_effect_is_said_in_the_receipts_reason(block: dict[str, str], warning: str, tmp_path: Path) -> None:
    trial = Trial(tmp_path, block)
    found = trial.verify()
    assert found.verdict is Verdict.CAPTURED, found.reason
    assert "1 warning(s): " in found.reason
    assert warning in found.reason
    assert [one for one in trial.summary["warnings"] if warning in one]


def test_a_program_that_ends_itself_over_what_the_origin_shows_has_been_captured(tmp_path: Path) -> None:
    """The optimizer makes the parameters bad, and the program stops before any watched tensor shows it."""
    program = LOOP + (
        "model.out.weight.grad.fill_(1e30)\n"
        "torch.optim.SGD(model.parameters(), lr=1e30).step()\n"
        "raise SystemExit('diverged')\n"
    )
    env = {"NANLOG_DIR": "out", "NANLOG_RUN_ID": "this run", "NANLOG_ORIGIN": "1"}
    ran = run([PYTHON, "-m", "aorta_collectors.layer_numerics", "-c", program], tmp_path, env)
    assert ran.code == 1
    found = summary(tmp_path / "out")
    assert found["first_bad"] is None, found["first_bad"]
    assert found["origin"] is not None, ran.err
    assert (found["origin"]["stage"], found["origin"]["module"]) == ("optimizer", "out")
    options = LayerNumerics().recall({"NANLOG_ORIGIN": "1"})
    with Anchor(tmp_path).open(tmp_path / "out") as artifacts:
        verification = LayerNumerics().verify(artifacts, Expected(options, frozenset({"this run"})))
    assert verification.verdict is Verdict.CAPTURED, verification.reason
