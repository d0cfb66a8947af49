"""Two commits of one script, of which the later computes one block in bfloat16; and an answer that is tampered with."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.investigate.acceptance.asking import Asked, answered
from tests.support import run

pytestmark = pytest.mark.sweep

SCRIPT = """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self, dtype):
        super().__init__()
        self.dtype, self.norm, self.up = dtype, nn.LayerNorm(16), nn.Linear(16, 16)

    def forward(self, hidden):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.dtype is torch.bfloat16):
            return hidden + torch.relu(self.up(self.norm(hidden)))

torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(Block(torch.float32), Block(torch.float32), Block(torch.float32), nn.Linear(16, 1))
for step in range(2):
    print(model(torch.randn(8, 16)).sum().item())
"""
BLOCKS = "Block(torch.float32), Block(torch.float32), Block(torch.float32)"
CHANGED = "Block(torch.float32), Block(torch.bfloat16), Block(torch.float32)"


@pytest.fixture
def revisions(tmp_path: Path) -> dict[str, str]:
    """Commits by work tree, `before` and `after`, in which the script lies."""

    def git(*words: str) -> str:
        who = ("-c", "user.name=a", "-c", "user.email=a@b")
        return run(["git", *who, *words], tmp_path / "before").ok().out.strip()

    script = tmp_path / "before" / "train.py"
    script.parent.mkdir()
    git("init", "--quiet")
    script.write_text(SCRIPT)
    git("add", "train.py")
    git("commit", "--quiet", "-m", "blocks")
    git("worktree", "add", "--quiet", "-b", "faster", "../after")
    (tmp_path / "after" / "train.py").write_text(SCRIPT.replace(BLOCKS, CHANGED))
    git("-C", "../after", "commit", "--quiet", "-a", "-m", "the second block in bfloat16")
    return {name: git("-C", f"../{name}", "rev-parse", "HEAD") for name in ("before", "after")}


def test_the_block_of_which_the_dtype_changed_is_the_first_that_differs(
    tmp_path: Path, revisions: dict[str, str]
) -> None:
    commands = ("--baseline", "python before/train.py", "--candidate", "python after/train.py")
    found = answered(tmp_path, "values", *commands, "--no-observer-effect", criterion=("--bitwise",))

    assert len(set(revisions.values())) == 2
    for name, commit in revisions.items():
        assert re.search(f"`{tmp_path / name}` *\\| .*{commit}", found.report)
    first = found.conclusion("First divergence")
    assert "after_forward:1.up.output, invocation 0" in first
    assert "float32" in first
    assert "bfloat16" in first
    assert "1 of 1 pair" in first
    assert any(path.name == "values_rank0_step1.safetensors" for path in found.artifacts_of(first))
    _tampering_is_found(found)


def _tampering_is_found(found: Asked) -> None:
    """Of everything that was changed, each has its line, and nothing is wrong once it is put back."""
    run_directory = found.root / "runs" / "002-candidate-1"
    patterns = ("values_rank0_step1.safetensors", "tensors_rank0.jsonl", "receipt_*_tensors.json", "matrix.json")
    binary = {next(run_directory.rglob(pattern)): _one_bit_of for pattern in patterns}
    (evidence,) = (found.root / "evidence").glob("*tensors-compare*")
    words = {
        run_directory / "stdout.log": ("0", "1"),
        run_directory / "run.json": ('"exit_code": 0', '"exit_code": 1'),
        evidence: ("mismatched", "matched"),
        found.root / "evidence" / "index.json": ('"exit_code": 3', '"exit_code": 0'),
        found.root / "metadata.json": ("nothing does", "something does"),
        found.root / "REPORT.md": ("1.up.output", "2.up.output"),
    }
    before = {path: path.read_bytes() for path in (*binary, *words)}
    changed = {path: change(before[path]) for path, change in binary.items()}
    changed |= {path: before[path].replace(old.encode(), new.encode()) for path, (old, new) in words.items()}
    for path, content in changed.items():
        assert content != before[path]
        path.write_bytes(content)
    verified = found.verifies()
    assert verified.code == 1
    assert [path for path in changed if f"\n{path}: " not in f"\n{verified.out}"] == []
    for path, content in before.items():
        path.write_bytes(content)
    found.verifies().ok()


def _one_bit_of(content: bytes) -> bytes:
    return content[:-2] + bytes([content[-2] ^ 1]) + content[-1:]
