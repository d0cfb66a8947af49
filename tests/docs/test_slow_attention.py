"""recipes/slow_attention: what profile says of its cells is what the script does in them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from aorta_collectors.cli import main

pytestmark = pytest.mark.sweep
Profiled = Callable[..., Any]


@pytest.fixture(scope="module")
def run_dir(captured: Callable[[str], Path]) -> Path:
    return captured("slow")


@pytest.fixture
def profiled(run_dir: Path) -> Profiled:
    """The document of one cell."""

    def profiled(cell: str, *words: str) -> Any:
        ran = CliRunner().invoke(main, ["profile", str(run_dir), "--cell", f"{cell}-none", "--json", *words])
        assert ran.exit_code == 0, ran.output
        return json.loads(ran.stdout)

    return profiled


def attention_of(found: Any) -> dict[str, list[str]]:
    """What is said of the attention of the blocks themselves, by direction."""
    (trial,) = found["trials"]
    return {
        naive["direction"]: [advice["rule"] for advice in naive["advice"]]
        for naive in trial["naive"]["found"]
        if naive["module_type"] == "Attention"
    }


def test_the_loop_is_told_to_be_attention_in_small_pieces(profiled: Profiled) -> None:
    found = attention_of(profiled("none", "--detect-naive"))
    assert {"attention", "fuse"} <= set(found["forward"])


def test_torchs_own_attention_is_not(profiled: Profiled) -> None:
    assert all("attention" not in rules for rules in attention_of(profiled("fused", "--detect-naive")).values())


def test_the_loop_is_slower_than_torchs_own_where_attention_is(profiled: Profiled) -> None:
    found = profiled("none", "--baseline", ":fused-none")
    assert (found["grade"], found["step"]["verdict"]) == ("F", "slower")
    first_four = [(brick["name"].rpartition(".")[2], brick["verdict"]) for brick in found["bricks"][:4]]
    assert first_four == [("attention", "slower")] * 4


def test_a_batch_is_faster_than_the_loop(profiled: Profiled) -> None:
    found = profiled("batched", "--baseline", ":none-none")
    assert (found["grade"], found["step"]["verdict"]) == ("A", "faster")


def test_all_cells_learn_the_same(profiled: Profiled) -> None:
    losses = [profiled(cell)["trials"][0]["throughput"]["last_loss"] for cell in ("none", "batched", "fused")]
    assert losses == pytest.approx([losses[0]] * 3, rel=1e-3)
