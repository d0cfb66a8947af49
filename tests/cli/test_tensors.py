"""The verb tensors: its sides, criteria and exit codes, and what it makes of bundles of real programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result

from aorta_collectors.cli import main
from tests.analysis.bundles.made import tensor, tensors
from tests.support import PYTHON, run

ONE = torch.tensor([1.0, 2.0])
NEXT = torch.nextafter(ONE, torch.full((2,), 9.0))


def verb(*words: str | Path) -> Result:
    return CliRunner().invoke(main, ["tensors", *map(str, words)])


@pytest.fixture
def cells(tmp_path: Path) -> Path:
    """A run of two cells, the second of which is a step of float32 away from the first."""
    for cell, value in (("none-none", ONE), ("next-none", NEXT)):
        place = tmp_path / "run" / cell / "training" / "trial_d0_m0_t0" / "tensors"
        for rank in (0, 1):
            kept = [tensor("a", ONE, keep=True), tensor("b", value if rank else ONE, keep=True)]
            tensors(place, [*kept, tensor("b", ONE * (rank + 1), kind="parameter")], rank=rank, ranks=2)
    return tmp_path / "run"


class TestCompare:
    def test_exits_with_0_where_all_match_and_with_3_where_not(self, cells: Path) -> None:
        same = verb("compare", f"{cells}:none-none", ":none-none")
        assert (same.exit_code, "All 6 observations match, all bit for bit." in same.output) == (0, True)
        assert verb("compare", f"{cells}:none-none", ":next-none").exit_code == 0
        ran = verb("compare", f"{cells}:none-none", ":next-none", "--bitwise")
        assert ran.exit_code == 3
        assert "First divergence, in the forward pass: after_forward:b.output, invocation 0 (step 1)" in ran.output
        assert "training/trial_d0_m0_t0" not in ran.output

    @pytest.mark.parametrize(
        ("words", "code"),
        [
            (("--ulp", "1"), 0),
            (("--ulp", "0"), 3),
            (("--rtol", "0", "--atol", "0"), 3),
            (("--rtol", "1e-3"), 0),
            (("--bitwise", "--name", "after_forward:a.*"), 0),
            (("--bitwise", "--rank", "0"), 0),
            (("--bitwise", "--rank", "1"), 3),
        ],
    )
    def test_criteria(self, cells: Path, words: tuple[str, ...], code: int) -> None:
        assert verb("compare", f"{cells}:none-none", ":next-none", *words).exit_code == code

    @pytest.mark.parametrize(
        "words",
        [
            ("--bitwise", "--ulp", "1"),
            ("--ulp", "1", "--rtol", "1"),
            ("--bitwise", "--equal-nan"),
            ("--rtol", "nan"),
            ("--ulp", "-1"),
            ("--ranks",),
        ],
    )
    def test_what_contradicts_itself_is_wrong_usage(self, cells: Path, words: tuple[str, ...]) -> None:
        assert verb("compare", cells, cells, *words).exit_code == 2

    def test_one_side_needs_ranks(self, cells: Path) -> None:
        assert verb("compare", cells).exit_code == 2
        ran = verb("compare", f"{cells}:none-none", "--ranks")
        assert ran.exit_code == 3
        assert "parameters of ranks 0-1 against each other" in ran.output
        assert "none is known to be the right one" in ran.output
        assert verb("compare", f"{cells}:none-none", "--ranks", "--name", "after_forward:*").exit_code == 0

    def test_json_into_a_file(self, cells: Path, tmp_path: Path) -> None:
        target = tmp_path / "found.json"
        words = (f"{cells}:none-none", ":next-none", "--bitwise", "--json", "-o", target, "--most", "1")
        assert verb("compare", *words).exit_code == 3
        found: dict[str, Any] = json.loads(target.read_text())
        assert found["counts"] == {
            **dict.fromkeys(("missing_in_baseline", "missing_in_candidate", "inconclusive", "below_atol"), 0),
            "matched": 5,
            "identical": 5,
            "mismatched": 1,
        }
        assert (found["first_divergence"]["rank"], found["first_divergence"]["layer"]) == (1, "b")
        assert found["first_divergence"]["difference"]["largest_ulps"] == 1

    def test_what_cannot_be_read(self, cells: Path, tmp_path: Path) -> None:
        ran = verb("compare", cells, tmp_path / "run/none-none@7")
        assert (ran.exit_code, "has no rank 7; there is: 0, 1" in ran.stderr) == (1, True)
        file = next(cells.glob("none-none/**/tensors_rank0.jsonl"))
        file.write_text("{}\n" + file.read_text())
        ran = verb("compare", cells, cells)
        assert (ran.exit_code, "tensors_rank0.jsonl: line 1: " in ran.stderr) == (1, True)


def test_series_list_and_show(tmp_path: Path) -> None:
    for side, by in (("a", 0.0), ("b", 0.5)):
        made = [tensor("x", ONE + by * at, step=at + 1, invocation=at, keep=True) for at in range(8)]
        tensors(tmp_path / side, [*made, tensor("loss", torch.tensor(float("nan")), kind="user")])
    ran = verb("series", tmp_path / "a", tmp_path / "b", "after_forward:x.output")
    assert ran.exit_code == 3
    assert "It begins with invocation 1, in step 2; the last to match is 0." in ran.output
    assert "From there on the largest difference grows by 0.5 an invocation (95 % between 0.5 and 0.5)." in ran.output
    assert verb("series", tmp_path / "a", tmp_path / "a", "after_*").exit_code == 0
    assert verb("series", tmp_path / "a", tmp_path / "b", "nothing").exit_code == 1

    ran = verb("list", tmp_path / "a")
    assert ran.exit_code == 0
    assert "rank 0: 2 names, 9 observations" in ran.output
    told = json.loads(verb("list", tmp_path / "a", "--json", "--name", "user:*").output)
    assert [(each["name"], each["nonfinite"]) for each in told["names"]] == [("user:loss", 1)]

    ran = verb("show", tmp_path / "b", "after_forward:x.output", "--invocation", "2", "--values")
    assert ran.exit_code == 0
    assert "tensor([2., 3.])" in ran.output
    (only,) = json.loads(
        verb("show", tmp_path / "b", "after_forward:x.output", "--invocation", "2", "--values", "--json").output
    )
    assert (only["values"], only["dtype"], only["rank"]) == ([2.0, 3.0], "float32", 0)
    assert verb("show", tmp_path / "a", "user:loss", "--values").exit_code == 1, "they were not kept"
    assert "there is no observation 'x'" in verb("show", tmp_path / "a", "x").stderr


PROGRAM = """
import sys
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8), nn.Linear(8, 4))
batch = torch.randn(4, 8)
for step in range(1, 5):
    if step == 3 and "changed" in sys.argv:
        with torch.no_grad():
            model[2].bias[5] += 1e-3
    model(batch).pow(2).mean().backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 0.1 * parameter.grad
            parameter.grad = None
"""


def test_real_runs_of_which_one_changes_a_layer_in_its_third_step(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    for name in ("same", "changed"):
        command = [PYTHON, "-m", "aorta_collectors.tensors", "--keep", "values", "train.py", name]
        run(command, tmp_path, {"TENSORS_DIR": name}).ok()
    ran = run(["aorta-collectors", "tensors", "compare", "same", "changed", "--json"], tmp_path)
    assert ran.code == 3, ran.err
    found = json.loads(ran.out)
    first = found["first_divergence"]
    assert (first["name"], first["invocation"], first["step"]) == ("after_forward:2.output", 2, 3)
    assert (first["is_clean"], first["direction"], first["difference"]["index"][1]) == (True, "forward", 5)
    assert first["difference"]["largest_absolute"] == pytest.approx(1e-3, rel=1e-3)
    (pair,) = found["pairs"]
    assert [each["what"] for each in pair["conditions"]][:1] == ["environment.argv"]
    assert verb("compare", tmp_path / "same", tmp_path / "same", "--bitwise").exit_code == 0
