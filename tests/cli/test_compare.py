"""The command compare: how its sides are named, what a person sees, and what it exits with."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from aorta_collectors.cli import main
from aorta_collectors.cli.compare_side import parse
from tests.captured.synthetic import record, write
from tests.support import run

Captured = Callable[[str], Path]


def compare(*words: str | Path) -> Result:
    return CliRunner().invoke(main, ["compare", *map(str, words)])


class TestSides:
    @pytest.mark.parametrize(
        ("text", "path", "below", "rank"),
        [
            ("run", "run", "", None),
            ("run:none-none", "run", "none-none", None),
            ("run:none-none:d0_m0_t1@3", "run", "none-none:d0_m0_t1", 3),
            ("run@12", "run", "", 12),
            ("odd:name@1", "odd:name@1", "", None),
            ("odd:name@1:cell@2", "odd:name@1", "cell", 2),
            ("run:a@b", "run", "a@b", None),
        ],
    )
    def test_the_words_are_read_with_paths_first(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, path: str, below: str, rank: int | None
    ) -> None:
        monkeypatch.chdir(tmp_path)
        for name in ("run", "odd:name@1"):
            (tmp_path / name).mkdir()
        side = parse(text)
        assert (side.path, side.below, side.rank) == (Path(path), below, rank)

    @pytest.mark.parametrize(
        ("text", "below", "rank"), [(":cell", "cell", None), ("@1", "", 1), (":cell@0", "cell", 0)]
    )
    def test_the_second_may_leave_out_the_path(self, tmp_path: Path, text: str, below: str, rank: int | None) -> None:
        side = parse(text, tmp_path)
        assert (side.path, side.below, side.rank) == (tmp_path, below, rank)

    @pytest.mark.parametrize("text", ["nowhere", "nowhere:cell@1", ":cell", "@1", "", "a\0b", "x" * 5000])
    def test_a_path_that_is_not_there_is_wrong_usage(self, text: str) -> None:
        with pytest.raises(click.UsageError, match="no such path"):
            parse(text)

    def test_a_cell_or_rank_that_is_not_there_is_named_beside_those_that_are(self, captured: Captured) -> None:
        ran = compare(captured("mitigations"), ":nonsense")
        assert ran.exit_code == 1
        assert "has no cell 'nonsense'; there is: none-none, " in ran.stderr
        assert "has no rank 7; there is: 0, 1" in compare(captured("ranks"), "@7").stderr


class TestExitCodes:
    def test_all_matched(self, captured: Captured) -> None:
        ran = run(["aorta-collectors", "compare", str(captured("clean")), str(captured("clean"))], Path.cwd()).ok()
        assert "All 496 records that both sides have match." in ran.out
        assert "no proof of equal tensors" in ran.out

    def test_a_difference(self, captured: Captured) -> None:
        ran = compare(f"{captured('ranks')}@0", "@1")
        assert ran.exit_code == 3
        assert "First difference: step 1, " in ran.output

    def test_nothing_to_compare(self, captured: Captured, tmp_path: Path) -> None:
        ran = compare(write(tmp_path / "d", {0: [record(1)]}), captured("mitigations"))
        assert ran.exit_code == 3
        assert "Nothing to compare" in ran.output
        ran = compare(write(tmp_path / "e", {0: [record(1)]}), write(tmp_path / "f", {0: [record(2)]}))
        assert ran.exit_code == 3
        assert "Nothing could be compared" in ran.output
        assert "NANLOG_SAMPLE_EVERY=1" in ran.output

    def test_a_counterpart_that_is_missing(self, captured: Captured) -> None:
        ran = compare(captured("mitigations"), captured("mitigations"), "--cell", "none-none")
        assert ran.exit_code == 0
        ran = compare(captured("ranks"), f"{captured('ranks')}@0")
        assert ran.exit_code == 3
        assert "only in A  none-none, trial 0, rank 1" in ran.output

    def test_a_tolerance_beside_exact_is_wrong_usage(self, tmp_path: Path) -> None:
        assert compare(tmp_path, tmp_path, "--exact", "--rtol", "1").exit_code == 2

    @pytest.mark.parametrize(("option", "value"), [("--rtol", "nan"), ("--atol", "inf"), ("--rtol", "-1")])
    def test_a_tolerance_that_is_none_is_wrong_usage(self, tmp_path: Path, option: str, value: str) -> None:
        ran = compare(tmp_path, tmp_path, option, value)
        assert (ran.exit_code, "is no tolerance" in ran.stderr) == (2, True)


def test_a_cell_that_overflows_beside_one_that_does_not(captured: Captured) -> None:
    ran = compare(f"{captured('overflow')}:none-none", ":clip_gradients-none")
    assert ran.exit_code == 3
    assert "First difference: step 18, bwd over_arch.model.1 igrad" in ran.output
    assert "B went through this step without a record of it, so it was not bad there." in ran.output


def test_json_has_all_of_it(captured: Captured, tmp_path: Path) -> None:
    target = tmp_path / "c.json"
    words = (f"{captured('mitigations')}:none-none", ":fp32_scores-none", "--json", "-o", target, "--most", "2")
    assert compare(*words).exit_code == 3
    found: dict[str, Any] = json.loads(target.read_text())
    (pair,) = found["pairs"]
    assert found["all_matched"] is False
    assert found["unpaired"] == {"a": [], "b": []}
    assert pair["pair"]["b"]["cell"] == "fp32_scores-none"
    assert sum(pair["counts"].values()) == 3840
    assert pair["first_bad_on_one_side"]["a"]["inf_count"] > 0
    assert pair["first_bad_on_one_side"]["b"]["inf_count"] == 0
    assert (len(pair["by_tensor"]), len(pair["by_step"])) == (2, 2)


def test_a_hostile_name_moves_no_cursor(tmp_path: Path) -> None:
    a = write(tmp_path / "a", {0: [record(1, "x\x1b[2J\n[red]y")]})
    b = write(tmp_path / "b", {0: [record(1, "x\x1b[2J\n[red]y", high=2.0)]})
    ran = compare(a, b)
    assert "\x1b" not in ran.output
    assert "First difference: step 1, fwd x\\x1b[2J\\n[red]y act (values differ)\n" in ran.output
