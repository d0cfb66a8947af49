"""What a run depends on, found out without changing it: no device, no import, no random number, no process."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from aorta_collectors.observe.environment import environment, generator_states, revision_of, settings, variables
from tests.support import PYTHON, ROOT, run


class TestGenerators:
    def test_equal_states_are_told_as_equal_and_nothing_is_drawn(self) -> None:
        torch.manual_seed(3)
        random.seed(3)
        first = generator_states()
        assert generator_states() == first
        assert first["torch_seed"] == 3
        numbers = torch.rand(2), random.random()
        after = generator_states()
        assert after["torch_state"] != first["torch_state"]
        assert after["python_state"] != first["python_state"]
        assert after["torch_seed"] == 3
        torch.manual_seed(3)
        random.seed(3)
        generator_states()
        assert (torch.rand(2).tolist(), random.random()) == (numbers[0].tolist(), numbers[1])

    def test_numpys_is_told_where_the_program_has_it(self) -> None:
        import numpy as np

        np.random.seed(1)
        first = generator_states()["numpy_state"]
        np.random.rand()
        assert first is not None
        assert generator_states()["numpy_state"] != first

    @pytest.mark.parametrize(("seeds", "seeded"), [("", False), ("numpy.random.seed(0)", True)])
    def test_whether_the_program_has_seeded_numpys(self, tmp_path: Path, seeds: str, seeded: bool) -> None:
        code = f"""
import numpy, json
from aorta_collectors.observe.environment import generator_states
numpy.random.rand()
{seeds}
print(json.dumps(generator_states()["numpy_seeded"]))
"""
        assert json.loads(run([PYTHON, "-c", code], tmp_path).ok().out) is seeded


class TestSettings:
    def test_those_that_decide_which_numbers_come_out(self, monkeypatch: pytest.MonkeyPatch) -> None:
        before = settings()
        assert (before["deterministic"], before["autocast"]) == (False, {"cpu": None, "cuda": None})
        torch.use_deterministic_algorithms(True, warn_only=True)
        precision = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high")
        try:
            with torch.autocast("cpu", torch.bfloat16):
                now = settings()
        finally:
            torch.use_deterministic_algorithms(False)
            torch.set_float32_matmul_precision(precision)
        assert (now["deterministic"], now["deterministic_warn_only"]) == (True, True)
        assert now["autocast"] == {"cpu": "bfloat16", "cuda": None}
        assert now["matmul_precision"] == "high"


class TestVariables:
    def test_what_may_matter_and_nothing_that_is_nobodys_business(self) -> None:
        given = {
            "CUDA_VISIBLE_DEVICES": "0",
            "PYTORCH_CUDA_ALLOC_CONF": "x",
            "NCCL_ALGO": "Ring",
            "OMP_NUM_THREADS": "1",
            "GLOBAL_SEED": "3",
            "PYTHONHASHSEED": "0",
            "RANK": "1",
            "TORCH_LOGS": "x" * 2000,
            "HOME": "/root",
            "TORCH_HUB_TOKEN": "secret",
            "CUDA_API_KEY": "secret",
            "HIP_PASSWORD": "secret",
        }
        found = variables(given)
        assert "secret" not in found.values()
        assert set(given) - set(found) == {"HOME", "TORCH_HUB_TOKEN", "CUDA_API_KEY", "HIP_PASSWORD"}
        assert len(found["TORCH_LOGS"]) == 1000
        assert list(found) == sorted(found)


def git(directory: Path, *words: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]
    done = subprocess.run(["git", *identity, *words], cwd=directory, check=True, capture_output=True, text=True)
    return done.stdout.strip()


class TestRevision:
    @pytest.fixture
    def tree(self, tmp_path: Path) -> Path:
        tree = tmp_path / "tree"
        tree.mkdir()
        git(tree, "init")
        git(tree, "commit", "--allow-empty", "-m", "one")
        return tree

    def test_of_a_branch_packed_or_not_a_tag_and_a_commit(self, tree: Path) -> None:
        head = git(tree, "rev-parse", "HEAD")
        (tree / "deep").mkdir()
        assert revision_of(tree / "deep") == head
        git(tree, "pack-refs", "--all")
        assert revision_of(tree) == head
        git(tree, "commit", "--allow-empty", "-m", "two")
        assert revision_of(tree) == git(tree, "rev-parse", "HEAD") != head
        git(tree, "checkout", head)
        assert revision_of(str(tree)) == head

    def test_of_a_further_work_tree(self, tree: Path, tmp_path: Path) -> None:
        git(tree, "worktree", "add", "-b", "other", str(tmp_path / "beside"))
        git(tmp_path / "beside", "commit", "--allow-empty", "-m", "there")
        there = git(tmp_path / "beside", "rev-parse", "HEAD")
        assert revision_of(tmp_path / "beside") == there != revision_of(tree)
        git(tree, "pack-refs", "--all")
        assert revision_of(tmp_path / "beside") == there

    def test_where_there_is_none_or_nothing_in_it(self, tmp_path: Path) -> None:
        assert revision_of(tmp_path) is None
        assert revision_of(tmp_path / "gone") is None
        (tmp_path / ".git").write_bytes(b"\xff\xfe")
        assert revision_of(tmp_path) is None
        (tmp_path / ".git").unlink()
        git(tmp_path, "init")
        assert revision_of(tmp_path) is None


def test_all_of_it_is_plain_and_says_what_there_is() -> None:
    found = environment()
    assert json.loads(json.dumps(found)) == found
    assert found["python"] == sys.version.split()[0]
    assert found["torch"]["version"] == torch.__version__
    assert found["packages"]["torch"].startswith(torch.__version__.split("+")[0])
    assert found["threads"] == torch.get_num_threads()
    assert found["script_revision"] is None or len(found["script_revision"]) == 40


def test_nothing_is_imported_started_or_warned_of(tmp_path: Path) -> None:
    code = """
import sys, subprocess, threading, warnings
import torch
warnings.simplefilter("error")
subprocess.Popen = os_fork = None
before = set(sys.modules)
from aorta_collectors.observe.environment import environment, generator_states
environment(), generator_states()
new = {name.partition(".")[0] for name in set(sys.modules) - before}
foreign = new - set(sys.stdlib_module_names) - {"aorta_collectors"}
print(sorted(foreign), torch.cuda.is_initialized(), threading.active_count())
"""
    assert run([PYTHON, "-c", code], ROOT).ok().out == "[] False 1\n"
