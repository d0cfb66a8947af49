"""`python -m aorta_collectors.tensors` around real programs, whatever ends them."""

from __future__ import annotations

from pathlib import Path

import pytest

from aorta_collectors.api import Verdict
from aorta_collectors.tensors.standalone import standalone
from tests.layer_numerics.programs import DMP
from tests.support import PYTHON, ROOT, run
from tests.tensors.left import Left, ran

GPT2 = """
import torch
from tests.numerics.models import gpt2
torch.set_num_threads(1)
torch.manual_seed(0)
sample = gpt2()
optimizer = torch.optim.AdamW(sample.model.parameters(), lr=1e-2)
for step in range(2):
    optimizer.zero_grad()
    sample.loss().backward()
    optimizer.step()
"""
TRAIN = """
import os, signal, torch
model = torch.nn.Linear(2, 2)
for step in range(1, 6):
    model(torch.randn(1, 2)).sum().backward()
    if step == 3:
        exec(os.environ.get("AT_3", ""))
"""


def test_gpt2_of_transformers(tmp_path: Path) -> None:
    raw = {"points": "after_forward,after_backward,after_step"}
    variables = {"PYTHONPATH": str(ROOT), "MY_SEED": "3", "NCCL_DEBUG": "WARN", "TORCH_HUB_TOKEN": "secret"}
    ran(tmp_path, GPT2, "--points", raw["points"], **variables).ok()
    left = Left(tmp_path / "out")
    summary = left.summary
    assert left.told(raw, run_id=summary["run_id"])[0] is Verdict.CAPTURED
    names = set(left.names)
    assert {
        "after_forward:(root).output['loss']",
        "after_forward:(root).output['logits']",
        "after_forward:transformer.wte.output",
        "after_forward:transformer.h.2.mlp.c_proj.output",
        "after_backward:transformer.h.0.attn.c_attn.output_grad",
        "after_backward:transformer.wte.weight.grad",
        "after_step:transformer.h.1.ln_1.weight",
    } <= names
    # The head is tied to the embedding: one parameter, under the name that comes first.
    assert "after_step:lm_head.weight" not in names
    steps = left.named("after_step:transformer.wte.weight")
    assert [(line["step"], line["invocation"]) for line in steps] == [(1, 0), (2, 1)]
    environment = summary["environment"]
    assert environment["argv"] == ["train.py"]
    assert "transformers" in environment["packages"]
    assert {"MY_SEED": "3", "NCCL_DEBUG": "WARN"}.items() <= environment["variables"].items()
    assert "secret" not in str(environment)


def test_a_recommender_of_torchrec(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(DMP)
    collector = ["-m", "aorta_collectors.tensors", "--dir", "out"]
    run([PYTHON, *collector, "train.py", "--lr", "0.1", "--steps", "2"], tmp_path).ok()
    left = Left(tmp_path / "out")
    summary = left.summary
    assert left.told({}, run_id=summary["run_id"])[0] is Verdict.CAPTURED
    assert summary["tensors_nonfinite"] == 0
    names = " ".join(left.names)
    for part in ("dense_arch", "over_arch", "sparse_arch", "weight.grad"):
        assert part in names


@pytest.mark.parametrize(
    ("at_3", "verdict", "reason"),
    [
        ("raise RuntimeError('boom')", Verdict.INCOMPLETE, "rank 0 ended in step 3 with RuntimeError: boom"),
        ("os.kill(os.getpid(), signal.SIGKILL)", Verdict.INCOMPLETE, "rank 0 died in step 3; evidence ends there"),
    ],
)
def test_what_ends_a_program(tmp_path: Path, at_3: str, verdict: Verdict, reason: str) -> None:
    ran(tmp_path, TRAIN, AT_3=at_3)
    left = Left(tmp_path / "out")
    found = left.told({}, run_id=left.summary["run_id"])
    assert (found[0], found[1][: len(reason)]) == (verdict, reason)
    assert {line["step"] for line in left.lines} >= {1, 2}


def test_what_cannot_be_taken_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for words, message in (
        (["--points", "somewhere"], "--points"),
        (["--max-bytes", "10"], "--max-bytes: has no effect without keep: values; keep is digest"),
        (["--point", "after_step"], "unknown option --point"),
    ):
        with pytest.raises(SystemExit) as caught:
            standalone().run([*words, "-c", "raise AssertionError('it runs')"], "COMMAND")
        assert caught.value.code == 2
        assert capsys.readouterr().err.startswith(f"COMMAND: {message}")


def test_help_has_each_option() -> None:
    assert set(standalone().options) == {"--points", "--scope", "--keep", "--max-bytes", "--steps", "--dir"}
    assert all(option in standalone().help for option in standalone().options)
