"""`aorta-collectors profile`: its screens and documents, what it asserts for CI, and runs of any size and name."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from rich.cells import cell_len
from rich.console import Console

from aorta_collectors.analysis.captures import NUMERICS
from aorta_collectors.analysis.numerics.tables import Lines
from aorta_collectors.analysis.profile import profile_of
from aorta_collectors.analysis.profile_baseline import against, side_of
from aorta_collectors.analysis.profile_naive import naive_of
from aorta_collectors.analysis.search import captures_below
from aorta_collectors.cli import main
from aorta_collectors.report import profile, profile_baseline, profile_energy, profile_naive, profile_roofline
from tests.captured.sweeps import trial
from tests.numerics.synthetic import brick, escalation, step_line, write
from tests.support import run

PROFILE = {"profile": "deferred"}
_HOSTILE = "x\x1b[2J<b>[red]\n\u202e" + "deep." * 60 + "end"


def ran(path: Path, *options: str, env: Mapping[str, str] | None = None) -> Result:
    found = CliRunner().invoke(main, ["profile", str(path), *options], env=env, catch_exceptions=False)
    assert found.exception is None or isinstance(found.exception, SystemExit)
    return found


def shown(path: Path, *options: str, **env: str) -> str:
    found = ran(path, *options, env=env)
    assert found.exit_code == 0, found.output
    return found.stdout


def document(path: Path, *options: str) -> Any:
    return json.loads(shown(path, "--json", *options))


@pytest.fixture
def numerics_out(tmp_path: Path) -> Path:
    return write(tmp_path / "numerics_out", config=PROFILE, escalations=[escalation("h.0.attn")])


class TestTheTable:
    def test_has_the_step_its_phases_and_the_bricks(self, numerics_out: Path) -> None:
        lines = [line.split() for line in shown(numerics_out).splitlines()]
        assert ["throughput", "6400", "tokens/s,", "400", "samples/s,", "100", "steps/s,", "MFU", "20.0%"] in lines
        assert ["backward", "5", "5.5", "6", "50.0%"] in lines
        assert [
            "h.0.attn",
            "Attention",
            "bwd",
            "1.4",
            "14.0%",
            "1",
            "1400",
            "1680",
            "0.05",
            "50.0%",
            "compute",
        ] in lines
        of_bricks = [line[0] for line in lines if len(line) > 2 and line[2] in ("fwd", "bwd")]
        assert of_bricks[0] == "h.0.attn"
        assert len(of_bricks) == 18
        assert "Closer looks" in shown(numerics_out)
        assert "futex 66.5%, compute 33.3% (strace)" in shown(numerics_out)

    def test_without_bricks_has_the_named_steps_and_says_how_to_get_them(self, tmp_path: Path) -> None:
        out = shown(write(tmp_path / "out"))
        assert ["TRANSFORMER_BLOCK", "fwd", "1", "1200", "1320", "1440", "12.0%"] in [
            line.split() for line in out.splitlines()
        ]
        assert "`profile: deferred`" in out

    def test_needs_neither_phases_nor_named_steps(self, tmp_path: Path) -> None:
        out = write(
            tmp_path / "out", steps=0, config={"trace": "none", "step_metrics": "off"}, summary={"trace_steps": []}
        )
        assert "0 steps" in shown(out)
        for view in ("--granular", "--energy", "--detect-naive"):
            assert shown(out, view)

    def test_lists_so_many_bricks_and_groups_of_all(self, numerics_out: Path) -> None:
        out = shown(numerics_out, "--most", "3")
        assert "... 15 more" in out
        assert ["h.*.attn", "bwd", "2", "2.8", "28.0%", "50.0%"] in [line.split() for line in out.splitlines()]
        assert "more" not in shown(numerics_out, "--all")

    def test_of_focus_has_those_alone(self, numerics_out: Path) -> None:
        out = shown(numerics_out, "--focus", "attention")
        assert "4 of 18 bricks" in out
        assert "h.0.mlp" not in out
        found = ran(numerics_out, "--focus", "attenton")
        assert found.exit_code == 1
        assert "near it: Attention" in found.stderr

    def test_has_ranks_and_what_they_wait_for(self, tmp_path: Path) -> None:
        of_rank = {
            rank: {
                "collectives": [
                    {"operation": "all_reduce", "calls": 4, "bytes": 4000, "total_us": 8000.0 - 4000 * rank}
                ]
            }
            for rank in range(2)
        }
        out = shown(write(tmp_path / "out", ranks=2, config=PROFILE, by_rank=of_rank))
        assert "rank 1 is busy longest: 9 ms of a step" in out
        assert "rank 0 most" in out


class TestSeveralTrials:
    @pytest.fixture
    def sweep(self, tmp_path: Path) -> Path:
        for cell in ("none-none", "compiled-none"):
            folder = trial(tmp_path / "run", cell, None, verdict=None)
            ms = 5.0 if cell == "compiled-none" else 10.0
            lines = [step_line(step, step_ms=ms) for step in range(1, 13)]
            write(folder / "trial_d0_m0_t0" / "numerics", config=PROFILE, step_lines=lines, steps=12)
        return tmp_path / "run"

    def test_each_has_a_line_and_the_first_is_shown(self, sweep: Path) -> None:
        lines = shown(sweep).splitlines()
        assert [line.split()[0] for line in lines[:3]] == ["cell", "compiled-none", "none-none"]
        assert lines[4] == "compiled-none, trial 0: 12 steps"
        assert "none-none, trial 0: 12 steps" in shown(sweep, "--cell", "none-none").splitlines()
        assert [each["cell"] for each in document(sweep)["trials"]] == ["compiled-none", "none-none"]

    def test_two_cells_are_compared(self, sweep: Path) -> None:
        out = shown(sweep, "--cell", "compiled-none", "--baseline", ":none-none")
        assert "Grade A: x0.5 the time of a step, faster." in out
        found = document(sweep, "--cell", "none-none", "--baseline", f"{sweep}:compiled-none")
        assert (found["grade"], found["ratio"], found["step"]["verdict"]) == ("F", 2, "slower")

    def test_an_assertion_holds_for_each(self, sweep: Path) -> None:
        assert ran(sweep, "--assert-p99", "13ms").exit_code == 0
        found = ran(sweep, "--assert-p99", "8ms")
        assert found.exit_code == 3
        assert found.stdout == ""
        assert found.stderr.splitlines() == ["none-none, trial 0: p99_ms is 12, more than the 8 asserted"]


class TestAssertions:
    @pytest.mark.parametrize(
        "options",
        [
            ("--assert-throughput", "6000"),
            ("--assert-throughput", "300samples/s", "--assert-p99", "50ms"),
            ("--assert-throughput", "99 steps/s", "--assert-p99", "0.02s"),
            ("--assert-p99", "12500us"),
        ],
    )
    def test_that_hold_say_nothing(self, numerics_out: Path, options: tuple[str, ...]) -> None:
        found = ran(numerics_out, *options)
        assert (found.exit_code, found.output) == (0, "")

    @pytest.mark.parametrize(
        ("options", "told"),
        [
            (("--assert-throughput", "7e3"), ["tokens_per_s is 6400, less than the 7000 asserted"]),
            (("--assert-throughput", "1000 samples/s"), ["samples_per_s is 400, less than the 1000 asserted"]),
            (
                ("--assert-throughput", "101steps/s", "--assert-p99", "5"),
                ["steps_per_s is 100, less than the 101 asserted", "p99_ms is 12, more than the 5 asserted"],
            ),
        ],
    )
    def test_that_do_not_hold_say_the_numbers(
        self, numerics_out: Path, options: tuple[str, ...], told: list[str]
    ) -> None:
        found = ran(numerics_out, *options)
        assert found.exit_code == 3
        assert found.stdout == ""
        assert [line.removeprefix(f"{numerics_out}: ") for line in found.stderr.splitlines()] == told

    def test_are_told_beside_a_view_that_was_asked_for(self, numerics_out: Path) -> None:
        found = ran(numerics_out, "--json", "--assert-p99", "5ms")
        assert found.exit_code == 3
        assert json.loads(found.stdout)["trials"]

    def test_take_samples_where_tokens_are_not_known(self, tmp_path: Path) -> None:
        metrics = {"step_metrics": {"samples_per_s": 20.0, "tokens_per_s": None}}
        found = ran(write(tmp_path / "out", summary=metrics), "--assert-throughput", "30")
        assert found.exit_code == 3
        assert "samples_per_s is 20" in found.stderr

    def test_of_what_is_not_known_is_an_error(self, tmp_path: Path) -> None:
        out = write(tmp_path / "out", config={"step_metrics": "off"}, summary={"step_metrics": {}})
        for option in ("--assert-throughput", "--assert-p99"):
            found = ran(out, option, "30")
            assert found.exit_code == 1
            assert "is not known" in found.stderr

    @pytest.mark.parametrize(
        "options",
        [
            ("--assert-throughput", "30apples"),
            ("--assert-throughput", "fast"),
            ("--assert-p99", "5 hours"),
            ("--assert-p99", "-1"),
        ],
    )
    def test_that_mean_nothing_are_wrong_usage(self, numerics_out: Path, options: tuple[str, ...]) -> None:
        assert ran(numerics_out, *options).exit_code == 2


class TestViews:
    def test_granular_has_numbers_for_each_brick(self, numerics_out: Path) -> None:
        assert "memory bounds what does fewer FLOP a byte than: float32 5, bfloat16 10" in shown(
            numerics_out, "--granular"
        )
        (found,) = document(numerics_out, "--granular")["trials"]
        first = found["points"][0]
        assert (first["layer"], first["intensity"], first["roof_flops_per_s"]) == ("h.0.attn", 100, 1e11)
        assert (first["flops_per_s"], first["efficiency"], first["bound"]) == (5e10, 0.5, "compute")

    def test_granular_draws_on_a_terminal(self, numerics_out: Path) -> None:
        command = f"aorta-collectors profile {numerics_out} --granular"
        drawn = (
            run(["script", "-qec", f"stty cols 90; {command}", "/dev/null"], numerics_out, {"TERM": "xterm"}).ok().out
        )
        assert "FLOP/s over FLOP a byte" in drawn
        assert "100G" in drawn

    def test_energy_says_why_there_is_none(self, numerics_out: Path) -> None:
        assert "not read: rapl: no such file" in shown(numerics_out, "--energy")

    def test_naive_takes_a_threshold(self, numerics_out: Path) -> None:
        assert "No brick takes more than 2 times" in shown(numerics_out, "--detect-naive")
        assert "18 of 18 bricks take more than 1.5 times" in shown(
            numerics_out, "--detect-naive", "--threshold", "1.5x"
        )
        (found,) = document(numerics_out, "--detect-naive", "--threshold", "1.5")["trials"]
        assert found["naive"]["found"][0]["times"] == pytest.approx(2)
        assert ran(numerics_out, "--detect-naive", "--threshold", "much").exit_code == 2

    def test_pictures(self, numerics_out: Path, tmp_path: Path) -> None:
        assert "forward;h.0;attn 2800\n" in shown(numerics_out, "--format", "folded")
        found = json.loads(shown(numerics_out, "--format", "speedscope"))
        assert [each["name"] for each in found["profiles"]] == ["forward", "backward"]
        assert sum(found["profiles"][0]["weights"]) == found["profiles"][0]["endValue"] == pytest.approx(4 * 2840)
        names = [frame["name"] for frame in found["shared"]["frames"]]
        assert [names[place] for place in found["profiles"][0]["samples"][1]] == ["forward", "h.0", "h.0.attn"]
        target = tmp_path / "x.svg"
        assert shown(numerics_out, "--format", "flamegraph", "-o", str(target)) == ""
        assert target.read_text().startswith("<?xml")
        assert ran(write(tmp_path / "off"), "--format", "folded").exit_code == 1

    def test_exclude_one_another(self, numerics_out: Path) -> None:
        assert ran(numerics_out, "--granular", "--energy").exit_code == 2
        assert ran(numerics_out, "--json", "--format", "folded").exit_code == 2

    def test_a_baseline_with_other_bricks_names_them(self, numerics_out: Path, tmp_path: Path) -> None:
        other = write(tmp_path / "other", config=PROFILE, bricks=[brick("h.0.attn"), brick("old")])
        out = shown(numerics_out, "--baseline", str(other))
        assert "only in the baseline: old" in out
        assert "No grade: not enough steps (4; 8 on each side at least)." in out


class TestAnyRun:
    def test_that_left_nothing_is_an_error(self, tmp_path: Path) -> None:
        trial(tmp_path / "run", "off-none", None, verdict="off")
        found = ran(tmp_path / "run")
        assert found.exit_code == 1
        assert "numerics left nothing in" in found.stderr

    def test_names_are_harmless(self, tmp_path: Path) -> None:
        slow = brick(_HOSTILE, module_type=_HOSTILE, bound="host", efficiency=0.01, units=4, dead_units=2)
        looks = [escalation(_HOSTILE, kernels=[{"name": _HOSTILE, "calls": 1, "self_us": 1.0, "device_us": None}])]
        summary = {"warnings": [_HOSTILE], "device": _HOSTILE}
        out = write(tmp_path / "out", config=PROFILE, bricks=[slow], escalations=looks, summary=summary)
        for view in (
            [],
            ["--granular"],
            ["--detect-naive"],
            ["--energy"],
            ["--baseline", str(out)],
            ["--format", "folded"],
        ):
            said = shown(out, *view)
            assert not any(char in said for char in "\x1b\u202e")
        assert len(shown(out, "--format", "folded").splitlines()) == 1

    def test_lines_may_say_anything(self, tmp_path: Path) -> None:
        out = write(tmp_path / "out", config=PROFILE, steps=12, escalations=[escalation("wte")])
        torn = [{"step": 1}, {"step": 2, "kind": "training", "is_counted": False, "step_ms": "long", "phases_ms": [1]}]
        torn += [
            {"step": 3, "kind": "training", "is_counted": False, "step_ms": 3, "phases_ms": {"opt": "x", "loss": None}}
        ]
        torn += [{"step": 4, "layer": "wte", "kernels": [3, {"name": 4}], "breakdown": [], "unavailable": [1]}]
        torn += [{"step": 4, "layer": "wte", "kind": "layer", "span_id": "1", "parent_span_id": "1", "duration_ns": -4}]
        for kind in ("steps", "spans", "escalations"):
            with (out / f"{kind}_rank0.jsonl").open("a") as stream:
                stream.writelines(json.dumps(line) + "\n" for line in torn)
                stream.write('[]\n{"step": 1e999, "step_ms": 1e999, "kind": "training", "is_counted": false}\n{"step"')
        for view in ([], ["--granular"], ["--detect-naive"], ["--energy"], ["--baseline", str(out)]):
            assert shown(out, *view)
            assert document(out, *view)

    @pytest.mark.parametrize("width", [40, 60, 80, 120])
    def test_lines_fit(self, tmp_path: Path, width: int) -> None:
        collectives = [{"operation": "all_reduce", "calls": 4, "bytes": 4000, "total_us": 8000.0, "source": "ddp"}]
        bricks = [brick(f"{_HOSTILE}{index}", module_type=_HOSTILE) for index in range(40)]
        out = write(tmp_path / "out", ranks=2, config=PROFILE, bricks=bricks, summary={"collectives": collectives})
        with Lines() as lines:
            (trial,) = captures_below(out, NUMERICS).captured
            found = profile_of(lines, trial)
            side = side_of(lines, trial, found)
        screen = io.StringIO()
        console = Console(
            file=screen, width=width, force_terminal=True, color_system=None, highlight=False, markup=False
        )
        profile.render([found, found], console, 25)
        profile_roofline.render(found, console, 25)
        profile_baseline.render(against(side, side), console, 25)
        profile_naive.render(found, naive_of(found, 1.5), console, 25)
        profile_energy.render(found, console)
        assert [line for line in screen.getvalue().splitlines() if cell_len(line.rstrip()) > width] == []

    def test_of_thousands_of_bricks_stays_short(self, tmp_path: Path) -> None:
        bricks = [brick(f"h.{index}.mlp", self_us=float(1 + index)) for index in range(2000)]
        out = write(tmp_path / "out", config=PROFILE, bricks=bricks)
        assert len(shown(out).splitlines()) < 60
        assert len(document(out)["trials"][0]["bricks"]) == 2000
        assert len(shown(out, "--detect-naive").splitlines()) < 60

    def test_of_hundreds_of_ranks_stays_short(self, tmp_path: Path) -> None:
        out = write(tmp_path / "out", ranks=200, steps=1, config=PROFILE, bricks=[brick("wte")])
        assert len(shown(out).splitlines()) < 60
        assert len(document(out)["trials"][0]["ranks"]) == 200

    def test_needs_no_more_than_ascii(self, numerics_out: Path) -> None:
        done = run(["aorta-collectors", "profile", str(numerics_out)], numerics_out, {"PYTHONIOENCODING": "ascii"}).ok()
        assert "\\u" not in done.out
