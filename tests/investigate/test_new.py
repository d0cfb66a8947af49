"""`investigate new`: a fresh root with the declared design, or nothing at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from aorta_collectors.errors import CollectorsError, OptionsError
from aorta_collectors.investigate.described import design_lines
from aorta_collectors.investigate.design import Design
from tests.investigate.support import OURS, PROGRAM, declared
from tests.support import PYTHON, run

CELLS = """
schema_version: 1
ticket: T
workload: script
trials: 3
steps: 1
workload_config: {argv: [python, train.py, --scale, "{seed}"]}
collect: [numerics]
cells:
  - {name: one, mitigations: [none], environment: local, trials: 2}
  - {name: silent, mitigations: [no_collectors], environment: local}
"""

BY_DEFAULT = "points:     after_forward, after_backward, as far as a run comes by there"


class TestRoot:
    def test_a_fresh_root_has_what_was_declared(self, tmp_path: Path) -> None:
        metadata = declared(tmp_path / "deep" / "root", tmp_path, seed=4, timeout_s=60).investigation.metadata
        assert (metadata["mode"], metadata["kind"], metadata["seed"], metadata["timeout_s"]) == (
            "fresh",
            "finite",
            4,
            60,
        )
        assert [variant["command"] for variant in metadata["variants"]] == [
            ["python", "train.py"],
            ["python", "train.py", "--scale", "2"],
        ]
        assert [run["name"] for run in metadata["schedule"]] == [
            "001-baseline-1",
            "002-baseline-1-bare",
            "003-candidate-1",
            "004-candidate-1-bare",
        ]
        assert metadata["started_at"] is None
        assert list((tmp_path / "deep" / "root" / "runs").iterdir()) == []

    @pytest.mark.parametrize("kind", ["directory", "file", "link"])
    def test_a_root_that_exists_is_refused_and_left_alone(self, tmp_path: Path, kind: str) -> None:
        root = tmp_path / "root"
        {"directory": root.mkdir, "file": root.touch, "link": lambda: root.symlink_to("nowhere")}[kind]()
        with pytest.raises(CollectorsError, match="nothing is ever overwritten"):
            declared(root, tmp_path)
        assert not (root / "metadata.json").exists()

    def test_what_is_refused_leaves_no_root(self, tmp_path: Path) -> None:
        with pytest.raises(OptionsError):
            declared(tmp_path / "root", tmp_path, commands={"baseline": "python nowhere.py"})
        assert not (tmp_path / "root").exists()


class TestVariants:
    @pytest.mark.parametrize(
        ("changed", "message"),
        [
            ({"commands": {}}, "--baseline: is missing"),
            ({"commands": {"baseline": "python train.py", "candidate": "python train.py"}}, "same as the baseline"),
            (
                {"commands": {"baseline": "python train.py"}, "environments": {"candidate": ["A=1"]}},
                "--candidate is not",
            ),
            ({"environments": {"baseline": ["A"]}}, "NAME=VALUE is wanted"),
            ({"environments": {"baseline": ["A=1", "A=2"]}}, "A is given twice"),
            ({"cells": {"baseline": "one"}}, "which recipe"),
            ({"revision_of": [Path(__file__).parent.parent.parent.parent]}, "does not lie in a git work tree"),
            ({"cwd": Path("nowhere")}, "is not a directory"),
        ],
    )
    def test_what_cannot_be_run_is_refused(self, tmp_path: Path, changed: dict[str, Any], message: str) -> None:
        with pytest.raises(OptionsError, match=message):
            declared(tmp_path / "root", tmp_path, **changed)

    def test_variables_alone_can_be_the_difference(self, tmp_path: Path) -> None:
        commands = {"baseline": "python train.py", "candidate": "python train.py"}
        made = declared(tmp_path / "root", tmp_path, commands=commands, environments={"candidate": ["A=b=c", "B="]})
        assert made.investigation.metadata["variants"][1]["environment"] == {"A": "b=c", "B": ""}

    def test_a_launch_that_cannot_be_armed_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(OptionsError, match="cannot be attached"):
            declared(tmp_path / "root", tmp_path, commands={"baseline": "bash -c 'exec python -I train.py'"})

    def test_how_collectors_get_in_is_told(self, tmp_path: Path) -> None:
        made = declared(tmp_path / "root", tmp_path)
        assert made.routes == dict.fromkeys(("baseline", "candidate"), "front-end (python script train.py)")
        lines = design_lines(made.investigation.metadata, made.routes, made.observed)
        assert "candidate:  python train.py --scale 2" in lines
        assert "    4  candidate, repetition 1, without the tool" in lines


class TestPrinted:
    @pytest.mark.parametrize(
        ("changed", "line"),
        [
            (
                {"kind": "values"},
                f"{BY_DEFAULT}; each run with the tool has to have after_forward",
            ),
            (
                {"kind": "values", "points": ("after_step",)},
                "points:     after_step; each run with the tool has to have them",
            ),
            (
                {"kind": "values", "collect": ("tensors",)},
                BY_DEFAULT,
            ),
        ],
    )
    def test_the_points_are_those_at_which_something_is_observed(
        self, tmp_path: Path, changed: dict[str, Any], line: str
    ) -> None:
        made = declared(tmp_path / "root", tmp_path, **changed)
        assert line in design_lines(made.investigation.metadata, made.routes, made.observed)

    @pytest.mark.parametrize("kind", ["memory", "timing", "values"])
    @pytest.mark.parametrize("repetitions", [None, 1, 5, 6, 9])
    def test_what_an_interval_takes_is_told_of_what_varies(
        self, tmp_path: Path, kind: str, repetitions: int | None
    ) -> None:
        made = declared(tmp_path / "root", tmp_path, kind=kind, design=Design.of(kind, repetitions=repetitions))
        told = [
            line
            for line in design_lines(made.investigation.metadata, {}.fromkeys(made.routes, ""), ())
            if "interv" in line
        ]
        if kind == "values":
            assert told == []
        elif repetitions in (1, 5):
            (line,) = told
            assert line.startswith("intervals:  none: one of 95% of a median takes 6 repetitions; of ")
        else:
            (line,) = told
            assert line.endswith("an exact one of 95% or more takes 6 repetitions")


class TestSeeds:
    def test_repetitions_of_a_seed_dependent_question_have_seeds(self, tmp_path: Path) -> None:
        design = Design.of("finite", repetitions=3)
        metadata = declared(tmp_path / "root", tmp_path, design=design).investigation.metadata
        assert [run["seed"] for run in metadata["schedule"] if run["tool"]] == [0, 0, 1, 1, 2, 2]

    def test_a_place_for_a_seed_in_a_command_gets_one(self, tmp_path: Path) -> None:
        commands = {"baseline": "python train.py --scale {seed}"}
        assert declared(tmp_path / "root", tmp_path, commands=commands).investigation.metadata["seed"] == 0

    def test_a_deterministic_question_has_none(self, tmp_path: Path) -> None:
        assert declared(tmp_path / "root", tmp_path).investigation.metadata["seed"] is None


class TestCells:
    def test_cells_of_a_recipe_take_the_place_of_commands(self, tmp_path: Path) -> None:
        from aorta_collectors.investigate.recipes import cell_recipe

        recipe = tmp_path / "cells.yaml"
        recipe.write_text(CELLS)
        made = declared(tmp_path / "root", tmp_path, commands={}, recipe=recipe, cells={"baseline": "one"})
        assert made.investigation.metadata["variants"] == [
            {"name": "baseline", "command": None, "environment": {}, "recipe": str(recipe), "cell": "one"}
        ]
        text = cell_recipe(recipe, "one", {"layer_numerics": {}}, 3, 1)
        assert "numerics: {}" in text
        assert "trials: 1" in text
        assert "trials: 2" not in text
        assert "  - 3\n" in text or "- 3\n" in text

    @pytest.mark.parametrize(
        ("cells", "message"),
        [
            ({"baseline": "two"}, "has no cell two; its cells: one, silent"),
            ({"baseline": "silent"}, "runs without collectors"),
            ({"candidate": "one"}, "--baseline-cell: is missing"),
        ],
    )
    def test_a_cell_that_cannot_be_observed_is_refused(self, tmp_path: Path, cells: Any, message: str) -> None:
        (tmp_path / "cells.yaml").write_text(CELLS)
        with pytest.raises(CollectorsError, match=message):
            declared(tmp_path / "root", tmp_path, commands={}, recipe=tmp_path / "cells.yaml", cells=cells)

    def test_a_probe_recipe_and_a_broken_one_are_refused(self, tmp_path: Path) -> None:
        recipe = tmp_path / "probe.yaml"
        recipe.write_text("schema_version: 1\nmode: nonsense\n")
        with pytest.raises(CollectorsError):
            declared(tmp_path / "root", tmp_path, commands={}, recipe=recipe, cells={"baseline": "one"})


class TestCommandLine:
    def test_the_design_and_the_next_command_are_printed_and_torch_is_not_imported(self, tmp_path: Path) -> None:
        (tmp_path / "train.py").write_text(PROGRAM)
        code = (
            "import atexit, sys; from aorta_collectors.cli import main; "
            "atexit.register(lambda: print('torch' in sys.modules)); main(prog_name='aorta-collectors')"
        )
        words = ["investigate", "new", "root", "--question", "Why?", "--criterion", "It is said."]
        words += ["--kind", "timing", "--baseline", "python train.py", "--candidate", "python train.py --scale 2"]
        ran = run([PYTHON, "-c", code, *words], tmp_path).ok()
        assert "after 1 warm-up run of each variant; also without the tool, in every repetition" in ran.out
        assert ran.out.endswith("Next: aorta-collectors investigate run root\nFalse\n")
        again = run([OURS, *words], tmp_path)
        assert (again.code, "nothing is ever overwritten" in again.err) == (1, True)

    def test_a_seed_for_no_random_order_is_wrong_usage(self, tmp_path: Path) -> None:
        words = ["--question", "a", "--criterion", "b", "--baseline", "true", "--order-seed", "3"]
        assert run([OURS, "investigate", "new", "root", *words], tmp_path).code == 2
