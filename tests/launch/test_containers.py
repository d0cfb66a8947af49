"""Programs in a container that has torch alone: a docker of our own drops the environment and runs the command.

The interpreter is that of an environment with torch and nothing else, so that whatever of this package the program
imports comes from the mounted directories.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.cli.test_pack import alone
from tests.launch.started import started
from tests.support import TRAIN, summary

__all__ = ["alone"]

SPEC = {"watch": [{"scope": {"types": ["Linear"]}, "tensors": ["output", "grad"]}], "sample_every": 1}
TWO_RANKS = """
import os, torch
from torch import nn
import torch.distributed as dist
dist.init_process_group("gloo")
model = nn.parallel.DistributedDataParallel(nn.Linear(2, 2))
model(torch.ones(2, 2)).sum().backward()
# In one piece: the ranks print at the same time.
os.write(1, f"rank {dist.get_rank()} {'NANLOG_DIR' in os.environ} {'HOME_OF_THE_HOST' in os.environ}\\n".encode())
del model
dist.destroy_process_group()
"""
STARTS = """
import os, subprocess, sys
print(os.environ.get("PYTHONPATH"), flush=True)
sys.exit(subprocess.run([sys.executable, "train.py"]).returncode)
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with programs, and a docker on PATH."""
    docker = tmp_path / "bin" / "docker"
    docker.parent.mkdir()
    docker.write_text(f"#!{sys.executable}\n{(Path(__file__).parent / 'fake_docker.py').read_text()}")
    docker.chmod(0o755)
    for name, source in {"train.py": TRAIN, "ranks.py": TWO_RANKS, "starts.py": STARTS}.items():
        (tmp_path / name).write_text(source)
    (tmp_path / "run.sh").write_text('exec "$1" train.py --lr 2\n')
    monkeypatch.setenv("HOME_OF_THE_HOST", "1")
    return tmp_path


def docker(home: Path, *command: str, image: str = "plain") -> list[str]:
    return [str(home / "bin" / "docker"), "run", "--rm", "-w", str(home), image, *command]


class TestDocker:
    def test_a_script_leaves_verified_evidence(self, home: Path, alone: str) -> None:
        spec = home / "spec.json"
        spec.write_text(json.dumps(SPEC))
        found = started(docker(home, alone, "-u", "train.py", "--lr", "2"), home, {"NANLOG_SPEC_FILE": str(spec)})
        found.captured()
        assert found.launch.route == "front-end"
        assert len(found.ran.out.splitlines()) == 5
        assert f"{spec}:{spec}:ro" in found.launch.argv
        assert summary(found.artifacts)["spec_applied"] is True

    def test_the_ranks_of_a_torchrun_in_it_too(self, home: Path, alone: str) -> None:
        words = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "ranks.py"]
        found = started(docker(home, alone, *words), home, {"NANLOG_SPEC": json.dumps(SPEC)}).captured()
        assert sorted(found.ran.out.splitlines()) == ["rank 0 True False", "rank 1 True False"]
        assert {summary(found.artifacts, rank)["world_size"] for rank in (0, 1)} == {2}

    def test_processes_that_a_program_starts_arm_themselves_and_keep_the_images_path(
        self, home: Path, alone: str
    ) -> None:
        found = started(docker(home, alone, "starts.py", image="with-path"), home).captured()
        assert found.ran.out.splitlines()[0].endswith("frontend/site:/image/lib")
        assert summary(found.artifacts)["steps_seen"] == 5

    def test_a_script_of_the_image_arms_its_children(self, home: Path, alone: str) -> None:
        found = started(docker(home, "sh", "run.sh", alone, image="with-path"), home).captured()
        assert found.launch.route == "environment"
        assert "if the image sets PYTHONPATH, it is replaced" in found.launch.note
