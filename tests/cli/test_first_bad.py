"""`aorta-collectors first-bad`: what is on the screen first, and what a script gets."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from aorta_collectors.analysis.database import Database
from aorta_collectors.analysis.first_bad import first_bad
from aorta_collectors.analysis.mitigations import across_cells
from aorta_collectors.analysis.search import captures_below
from aorta_collectors.report.first_bad import render
from tests.captured.sweeps import trial
from tests.captured.synthetic import Record, record, write
from tests.support import Ran, run

Captured = Callable[[str], Path]


def ask(path: Path, *options: str) -> Ran:
    return run(["aorta-collectors", "first-bad", str(path), *options], path.parent)


def screen(path: Path, width: int = 80, color: bool = False) -> str:
    """The view, as a terminal of a width shows it."""
    captures = captures_below(path)
    stream = io.StringIO()
    console = Console(file=stream, width=width, force_terminal=color, markup=False, emoji=False, highlight=False)
    with Database(captures) as database:
        render(across_cells(captures.path, first_bad(captures, database)), console)
    return stream.getvalue()


def steps(last: int, bad_at: int | None = None, layer: str = "a", **more: Any) -> list[Record]:
    """Of one rank: a tensor that triples in each step, and overflows."""
    return [
        record(step, layer, high=3.0**step, infs=3 * int(step == bad_at), dtype="torch.float16", **more)
        for step in range(1, last + 1)
    ]


class TestRealCaptures:
    def test_a_sweep_of_mitigations(self, captured: Captured) -> None:
        ran = ask(captured("mitigations"), "--exit-code")
        assert (ran.code, ran.err) == (3, "")
        head, _, rest = ran.out.partition("\n\n")
        first, second, run_up, *_ = head.splitlines()
        assert first == "Bad in 5 of 6 cells."
        assert second.startswith("First bad in the baseline none-none: step ")
        assert ".attention.scores: " in second
        assert second.endswith(" Inf, float16")
        assert run_up.startswith("  run-up ")
        assert run_up.endswith("; float16 ends at 65504")
        assert rest.splitlines()[0] == "removed by   fp32_scores (clean in 30 steps)"
        assert not [line for line in ran.out.splitlines() if line != line.rstrip()]

    def test_a_pipeline_of_which_a_stage_writes_a_nan(self, captured: Captured) -> None:
        assert ask(captured("pipeline")).ok().out.splitlines() == [
            "First bad: step 4, pipeline track of embedding_features: 1 of 64 NaN, float32",
            "  run-up none: steady at 57.97 in steps 0-3",
            "  batch  7, at copy",
            "  origin data, embedding_features, step 4: the batch held it before the model read it",
        ]

    def test_a_clean_run(self, captured: Captured) -> None:
        ran = ask(captured("clean"), "--exit-code")
        assert (ran.code, ran.out) == (0, "Nothing bad in 8 steps of 1 trial.\n")

    def test_an_overflow_in_one_of_three_cells(self, captured: Captured) -> None:
        shown = screen(captured("overflow"))
        assert "x3 a step; huge is beyond 1e+10" in shown
        assert "removed by  clip_gradients (clean in 60 steps)\nno evidence no_collectors (trial 0 is off)\n" in shown
        assert "no_collectors-none, trial 0: evidence off: the cell switched collectors off" in shown


class TestForMachines:
    def test_the_document(self, tmp_path: Path) -> None:
        trial(tmp_path / "run", "none-local", {0: steps(9), 1: steps(9, 5)})
        trial(tmp_path / "run", "fix-local", {0: steps(9), 1: steps(9)})
        ran = ask(tmp_path / "run", "--json", "--exit-code", "-o", str(tmp_path / "found.json"))
        assert (ran.code, ran.out) == (3, "")
        found = json.loads((tmp_path / "found.json").read_text())
        assert found["bad"] is True
        baseline, fix = found["cells"]
        assert (baseline["cell"], baseline["outcome"], fix["cell"], fix["outcome"]) == (
            "none-local",
            "baseline",
            "fix-local",
            "removed",
        )
        (of_trial,) = baseline["trials"]
        assert {name: of_trial[name] for name in ("trial", "verdict", "earliest", "steps", "running")} == {
            "trial": "d0_m0_t0",
            "verdict": "captured",
            "earliest": "rank1",
            "steps": 9,
            "running": False,
        }
        clean, bad = of_trial["processes"]
        assert (clean["rank"], clean["fault"], clean["run_up"]) == (0, None, None)
        assert (bad["fault"]["step"], bad["fault"]["kind"], bad["fault"]["inf_count"]) == (5, "inf", 3)
        assert bad["fault"] == bad["first_bad"] == bad["first_nonfinite"]
        assert bad["run_up"] == {
            "steps": [1, 2, 3, 4],
            "magnitudes": [3.0, 9.0, 27.0, 81.0],
            "limit": 65504.0,
            "limit_of": "float16",
            "per_step": pytest.approx(3),
        }

    def test_without_the_option_what_is_bad_is_no_error(self, tmp_path: Path) -> None:
        assert ask(write(tmp_path / "out", {0: steps(9, 5)})).code == 0

    def test_a_part_is_what_was_asked_for(self, tmp_path: Path) -> None:
        trial(tmp_path / "run", "none-local", {0: steps(9), 1: steps(9, 5)})
        assert ask(tmp_path / "run", "--rank", "0", "--exit-code").code == 0
        assert ask(tmp_path / "run", "--rank", "1", "--exit-code").code == 3
        ran = ask(tmp_path / "run", "--cell", "fix")
        assert (ran.code, ran.out) == (1, "")
        assert "has no cell 'fix'; there is: none-local" in ran.err

    def test_what_is_damaged_is_told_beside_what_is_not(self, tmp_path: Path) -> None:
        trial(tmp_path / "run", "none-local", {0: steps(9, 5)})
        (tmp_path / "run" / "none-local" / "training" / "trial_d0_m0_t0.json").write_text("{")
        ran = ask(tmp_path / "run").ok()
        assert ran.out.startswith("First bad: step 5, ")
        assert ran.err.startswith("not read: ")
        assert len(ran.err.splitlines()) == 1


class TestScreen:
    def test_of_many_ranks_the_earliest_is_marked_and_the_clean_ones_share_a_row(self, tmp_path: Path) -> None:
        ranks = {rank: steps(9, {7: 6, 8: 5}.get(rank)) for rank in range(64)}
        shown = screen(write(tmp_path / "out", ranks))
        assert shown.splitlines()[0] == "First bad in rank 8 of 64 ranks: step 5, fwd act of a: 3 of 8 Inf, float16"
        rows = [line.split() for line in shown.partition("\n\n")[2].splitlines()]
        assert rows[1][1:] == ["8", "first", "5", "fwd", "act", "a", "inf"]
        assert rows[2] == ["7", "6", "fwd", "act", "a", "inf"]
        assert rows[3] == ["62", "ranks", "-", "clean,", "9", "steps"]
        assert len(rows) == 4

    def test_of_many_trials_the_clean_ones_share_a_row(self, tmp_path: Path) -> None:
        for index in range(30):
            trial(tmp_path, "none-local", {0: steps(9, 4 + index if index < 3 else None)}, index=index)
        shown = screen(tmp_path)
        assert shown.startswith("First bad in trial 0: step 4, ")
        rows = [line.split() for line in shown.partition("\n\n")[2].splitlines()]
        assert [row[:3] for row in rows[1:]] == [
            ["none-local", "0", "4"],
            ["1", "5", "fwd"],
            ["2", "6", "fwd"],
            ["27", "trials", "-"],
        ]

    def test_hundreds_of_bad_cells_trials_and_ranks_fit(self, tmp_path: Path) -> None:
        for cell in range(40):
            trial(tmp_path, f"c{cell}-local", {0: steps(9, 5)})
        for index in range(40):
            trial(tmp_path, "many_trials-local", {0: steps(9, 5 + index % 2)}, index=index)
        trial(tmp_path, "many_ranks-local", {rank: steps(9, 5 + rank % 2) for rank in range(40)})
        lines = screen(tmp_path).splitlines()
        assert len(lines) < 100
        shown = "\n".join(lines)
        assert "32 more" in shown
        assert "34 more" in shown
        assert "35 more cells are bad: --cell NAME tells of one." in shown

    @pytest.mark.parametrize("width", [20, 40, 63, 64, 80, 10_000])
    def test_every_width_shows_every_cell_and_no_line_is_wider(self, tmp_path: Path, width: int) -> None:
        trial(tmp_path, "none-local", {0: steps(9), 1: steps(9, 5, "model.layers.0.attention.scores.projection")})
        trial(tmp_path, "fix-local", {0: steps(9), 1: steps(9)})
        trial(tmp_path, "off-local", None, verdict="off", passed=False)
        lines = screen(tmp_path, width).splitlines()
        assert max(map(len, lines)) <= width
        whole = " ".join(" ".join(lines).split())
        for told in ("removed", "off,", "trial", "failed", "baseline"):
            assert told in whole
        assert [name for name in ("none-local", "fix-local", "off-local") if name not in whole.replace("- ", "-")] == []

    @pytest.mark.parametrize("width", [40, 80, 10_000])
    def test_what_a_program_chose_cannot_move_the_cursor(self, tmp_path: Path, width: int) -> None:
        hostile = "a\x1b[31m\n[red]<b>\u202e" + "long." * 400
        origin = {"step": 5, "stage": "forward", "module": hostile, "reason": hostile, "rank": 0, "role": "act"}
        origin |= {"kind": "inf", "layer_name": hostile}
        for cell in ("none-\x1b[2J", "fix-\x1b[2J"):
            entries = steps(9, 5, hostile, tensor_path=hostile, direction="pipeline", checkpoint=hostile, phase="copy")
            trial(tmp_path, cell, {0: entries}, mitigations=[hostile], summaries={0: {"origin": origin}})
        shown = screen(tmp_path, width)
        assert all(character.isprintable() or character == "\n" for character in shown)
        assert "\\x1b[31m\\n[red]<b>" in shown.replace("\n", "")
        assert len(shown) < 20_000

    def test_colours_are_of_a_terminal_alone(self, tmp_path: Path) -> None:
        directory = write(tmp_path / "out", {0: steps(9, 5)})
        assert "\x1b[" in screen(directory, color=True)
        assert "\x1b[" not in screen(directory)

    def test_what_is_bad_by_design_is_told_and_is_nothing_bad(self, tmp_path: Path) -> None:
        mask = {"kind": "mask", "steps": 1, "first": {"step": 5}}
        trial(tmp_path, "none-local", {0: steps(9, 5)}, summaries={0: {"origin": None, "expected": [mask]}})
        trial(tmp_path, "fix-local", {0: steps(9)})
        shown = screen(tmp_path)
        assert shown.startswith("Nothing bad in 9 steps of 2 trials.\n")
        assert "bad by design only (mask), 9 steps" in " ".join(shown.split())

    def test_where_there_is_no_evidence_nothing_is_known(self, tmp_path: Path) -> None:
        trial(tmp_path, "none-local", None, verdict="missing")
        shown = screen(tmp_path)
        assert shown.startswith("Nothing is known: no trial has evidence.\n")
        assert "none-local, trial 0: evidence missing: made up to be missing" in shown
        trial(tmp_path, "fix-local", {0: steps(9)})
        assert screen(tmp_path).startswith("Nothing bad in 9 steps of 1 trial; 1 more without evidence.\n")

    def test_a_trial_that_runs_is_clean_so_far(self, tmp_path: Path) -> None:
        running = {0: {"status": "running"}}
        trial(tmp_path, "none-local", {0: steps(9)}, verdict=None, summaries=running)
        trial(tmp_path, "fix-local", {0: steps(8)}, verdict=None, summaries=running)
        assert "clean, 9 steps, still running" in screen(tmp_path)

    @pytest.mark.parametrize(
        ("magnitudes", "told"),
        [
            ([1.0, 10.0, 100.0], "1 -> 100 in steps 0-2, x10 a step; float16 ends at 65504"),
            ([0.5, 0.6, 0.55], "none: steady at 0.55 in steps 0-2"),
            ([8.0, 900.0, 9.0], "none: 8 to 900 in steps 0-2, 9 at last; float16 ends at 65504"),
            ([0.0, 5.0], "none: 0 to 5 in steps 0-1, 5 at last; float16 ends at 65504"),
            ([4.0], "none: steady at 4 in step 0"),
            ([], "no record of this tensor before (NANLOG_PRE_CONTEXT keeps some)"),
        ],
    )
    def test_the_run_up_is_a_phrase(self, tmp_path: Path, magnitudes: list[float], told: str) -> None:
        entries = [record(step, high=high, dtype="torch.float16") for step, high in enumerate(magnitudes)]
        entries.append(record(9, nans=1, dtype="torch.float16"))
        shown = screen(write(tmp_path / "out", {0: entries}), 200)
        assert f"  run-up {told}" in shown.splitlines()

    def test_a_loss_that_follows_a_huge_value_is_told(self, tmp_path: Path) -> None:
        entries = [record(1, huge=1), record(7, "b", nans=1, role="loss")]
        assert "  then   step 7, fwd loss of b: 1 of 8 NaN, float32" in screen(write(tmp_path / "o", {0: entries}), 200)

    def test_cells_of_several_sweeps_are_told_apart(self, tmp_path: Path) -> None:
        for sweep in ("s1", "s2"):
            trial(tmp_path / sweep, "none-local", {0: steps(9, 5)})
            trial(tmp_path / sweep, "fix-local", {0: steps(9)})
            (tmp_path / sweep / "evidence.json").write_text("{}")  # no ledger, but where a sweep's directory is
        shown = screen(tmp_path, 200)
        assert "First bad in the baseline s1: none-local: step 5, " in shown
        assert "removed by s1: fix-local (clean in 9 steps), s2: fix-local (clean in 9 steps)\n" in shown

    def test_what_cannot_be_compared_is_undecided(self, tmp_path: Path) -> None:
        trial(tmp_path, "none-local", {0: steps(9, 3)})
        trial(tmp_path, "fix-local", {0: steps(9, 7)})
        trial(tmp_path, "fix-local", None, index=1, verdict="missing")
        assert "undecided fix (+4 steps, trial 1 is missing)\n" in screen(tmp_path, 200)
