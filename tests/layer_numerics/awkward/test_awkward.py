"""Awkward programs run as they would have, and what is awkward about them hides nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.layer_numerics.awkward.runs import Ahead, Armed, Outcome, ahead, is_alone, noise
from tests.layer_numerics.awkward.table import ROWS, Row

ALL = sorted(ROWS)


@pytest.fixture(scope="module")
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ahead]:
    wanted = {
        item.callspec.params["program"]
        for item in request.session.items
        if item.path == request.path and hasattr(item, "callspec")
    }
    programs = [(program, ROWS[program].clean) for program in ALL if program in wanted]
    yield from ahead(tmp_path_factory.mktemp("awkward"), programs, is_alone)


@pytest.fixture
def outcome(program: str, runs: Ahead) -> Outcome:
    return runs.begin(program, clean=ROWS[program].clean).result()


@pytest.mark.parametrize("program", ALL)
def test_the_program_runs_as_if_it_were_not_watched(program: str, outcome: Outcome) -> None:
    bare = outcome.bare
    assert bare.code == ROWS[program].end
    for armed in (outcome.plain, outcome.origin):
        assert armed.ran.out == bare.out
        assert armed.ran.code == bare.code
        assert noise(armed.ran) == noise(bare)
        assert armed.summary["hook_errors"] == 0, armed.summary["first_hook_error"]
        assert armed.summary["tensors_skipped"] == {}


@pytest.mark.parametrize("program", ALL)
def test_every_layer_is_recorded_or_named_as_hidden(program: str, outcome: Outcome) -> None:
    row = ROWS[program]
    for armed in (outcome.plain, outcome.origin):
        summary = armed.summary
        assert tuple(summary["watched_names"]) == row.layers
        assert tuple(summary["opaque_names"]) == row.opaque
        assert bool(summary["graph_breaks"]) == row.breaks
        assert (summary["steps_seen"], summary["optimizer_steps"]) == (row.steps, row.optimizer_steps)
        assert summary["evaluation_steps"] == row.evaluations
        _check_records(armed, row)


def _check_records(armed: Armed, row: Row) -> None:
    seen = {(record["layer_name"], record["role"]) for record in armed.records}
    for layer in row.layers:
        assert (layer, "act") in seen or layer in row.opaque
    steps = [record["step"] for record in armed.records]
    # A gradient's record has the number that its forward call had.
    optimizer_steps = [record["optimizer_step"] for record in armed.records if record["direction"] == "fwd"]
    assert steps == sorted(steps)
    assert optimizer_steps == sorted(optimizer_steps)
    assert max([record["invocation"] for record in armed.records], default=0) == row.invocations
    evaluations = {record["step"] for record in armed.records if record.get("evaluation")}
    assert len(evaluations) == row.evaluations
    for record in armed.records:
        before = [step for step in evaluations if step <= record["step"]]
        assert record.get("evaluation_steps", 0) == len(before)


@pytest.mark.parametrize("program", ALL)
def test_the_first_bad_value_is_where_and_when_it_was_made(program: str, outcome: Outcome) -> None:
    row = ROWS[program]
    for armed in (outcome.plain, outcome.origin):
        first = armed.summary["first_bad"]
        if first is not None and first["layer"] == "(loss)":
            continue  # looked at for the origin alone, and before any gradient
        assert (first and (first["step"], first["layer"], first["role"])) == row.first_bad
        # What lines ranks up by training steps stands with each finding.
        if first is not None:
            evaluated = {record["step"] for record in armed.records if record.get("evaluation")}
            before = [step for step in evaluated if step <= first["step"]]
            assert (first.get("evaluation_steps", 0), first.get("evaluation", False)) == (
                len(before),
                first["step"] in evaluated,
            )
    origin = outcome.origin.summary["origin"]
    assert (origin["stage"], origin["module"], origin["step"]) == row.origin


@pytest.mark.parametrize("program", [program for program in ALL if ROWS[program].clean])
def test_without_it_nothing_is_bad(program: str, outcome: Outcome) -> None:
    clean = outcome.clean
    assert clean is not None
    assert clean.ran.code == 0, clean.ran.err
    assert clean.summary["first_bad"] is None
    assert clean.summary["origin"] is None
    assert clean.summary["hook_errors"] == 0, clean.summary["first_hook_error"]


def test_hidden_layers_are_said_on_stderr(runs: Ahead) -> None:
    outcome = runs.begin("compiled.function_around", clean=False).result()
    assert "torch.compile or TorchScript runs 2 watched layer(s)" in outcome.plain.ran.err


def test_every_program_has_its_row(runs: Ahead) -> None:
    import ast

    from tests.layer_numerics.awkward.runs import PROGRAMS

    found = {
        f"{path.stem}.{node.name}"
        for path in PROGRAMS.glob("*.py")
        if path.stem != "shared"
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
    }
    assert found == set(ROWS)


def test_no_warning_is_moved_to_a_line_of_ours(tmp_path: Path, runs: Ahead) -> None:
    printed = runs.begin("differentiation.deprecated_arguments", clean=True).result().origin.ran.out
    assert "differentiation.py" in printed
    assert "importlib" not in printed
