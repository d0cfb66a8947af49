"""The verb memory: exit codes, and what it makes of real programs of which one grows."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner, Result

from aorta_collectors.cli import main
from tests.analysis.bundles.made import memory, tensors
from tests.analysis.bundles.test_growth import MB, steps
from tests.support import PYTHON, run


def verb(*words: str | Path) -> Result:
    return CliRunner().invoke(main, ["memory", *map(str, words)])


def made(tmp_path: Path) -> tuple[Path, Path]:
    """A run of two ranks that stays, and one of which rank 1 grows."""
    for name, leak in (("steady", 0), ("grows", 2 * MB)):
        for rank in (0, 1):
            memory(tmp_path / name, steps([0, 0, leak * rank, 0]), rank=rank, ranks=2)
    return tmp_path / "steady", tmp_path / "grows"


def test_show_exits_with_3_where_it_is_asked_to_and_something_grows(tmp_path: Path) -> None:
    steady, grows = made(tmp_path)
    assert verb("show", steady, "--exit-code").exit_code == 0
    assert verb("show", grows).exit_code == 0
    ran = verb("show", grows, "--exit-code")
    assert ran.exit_code == 3
    assert "host rss grows: at before_forward from 502 MiB in step 2 to 522 MiB in step 12, +20.0 MiB" in ran.output
    assert verb("show", f"{grows}@0", "--exit-code").exit_code == 0
    assert verb("show", grows, "--exit-code", "--least", str(64 * MB)).exit_code == 0
    assert verb("show", tmp_path).exit_code == 1, "no trial lies there"
    assert verb("show", tmp_path / "steady/summary_rank0.json").exit_code == 1


def test_what_another_collector_left_is_told_in_a_whole_sentence(tmp_path: Path) -> None:
    ran = verb("show", tensors(tmp_path, []))
    assert ran.exit_code == 1
    assert "summary_rank0.json is no summary of memory: files is missing" in ran.output


def test_compare_exits_with_3_where_it_is_asked_to_and_the_candidate_is_worse(tmp_path: Path) -> None:
    steady, grows = made(tmp_path)
    assert verb("compare", steady, grows).exit_code == 0
    ran = verb("compare", steady, grows, "--exit-code")
    assert ran.exit_code == 3
    assert "in after_backward -> after_step: +2.00 MiB a step on average, against 0 B in the baseline" in ran.output
    assert verb("compare", grows, steady, "--exit-code").exit_code == 0
    assert verb("compare", f"{grows}@0", "@1", "--exit-code").exit_code == 3


def test_json_into_a_file(tmp_path: Path) -> None:
    steady, grows = made(tmp_path)
    target = tmp_path / "found.json"
    assert verb("show", grows, "--json", "-o", target).exit_code == 0
    assert [each["growing"] for each in json.loads(target.read_text())] == [[], ["host rss"]]
    found = json.loads(verb("compare", steady, grows, "--json").output)
    assert [pair["found"] for pair in found["pairs"]] == [[], ["host rss"]]


PROGRAM = """
import sys
import torch
from torch import nn
model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
kept = []
for step in range(10):
    loss = model(torch.ones(2, 8)).sum()
    loss.backward()
    if "grows" in sys.argv:
        kept.append(b"x" * (4 << 20))
    optimizer.step()
    optimizer.zero_grad()
"""


def test_real_runs_of_which_one_keeps_what_it_takes(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    for name in ("steady", "grows"):
        run([PYTHON, "-m", "aorta_collectors.memory", "train.py", name], tmp_path, {"MEMORY_DIR": name}).ok()
    ran = run(["aorta-collectors", "memory", "compare", "steady", "grows", "--exit-code", "--json"], tmp_path)
    assert ran.code == 3, ran.err
    (pair,) = json.loads(ran.out)["pairs"]
    assert pair["found"] == ["host rss"]
    (rss,) = [each for each in pair["measures"] if (each["memory"], each["name"]) == ("host", "rss")]
    assert (rss["grows_more"], rss["growing_phase"]) == (True, "after_backward -> after_step")
    assert verb("show", tmp_path / "steady", "--exit-code").exit_code == 0
