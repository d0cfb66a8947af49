"""Each way to start a Python program leaves verified evidence, and the program prints what it prints without us."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from aorta_collectors.api import Verdict
from tests.launch.started import started
from tests.launchers.commands import STARTED, UNARMED, Case, lay_out, own_lines


@pytest.mark.parametrize("case", STARTED, ids=lambda case: case.text.replace("/", "|"))
def test_a_command_leaves_verified_evidence(case: Case, bare: list[str], tmp_path: Path) -> None:
    case.skip_where_it_cannot_run()
    found = started(case.words, lay_out(tmp_path)).captured()
    assert own_lines(found.ran.out) == sorted(bare * case.processes)
    assert len(list(found.artifacts.glob("summary_*.json"))) == case.processes
    assert found.launch.route == case.route or not case.route, found.launch.note


@pytest.mark.parametrize("text", UNARMED)
def test_where_nothing_can_be_armed_the_program_runs_and_the_reason_says_so(
    text: str, bare: list[str], tmp_path: Path
) -> None:
    found = started(Case(text).words, lay_out(tmp_path))
    assert own_lines(found.ran.ok().out) == bare
    assert found.launch.note.startswith("arming is impossible: ")
    assert (found.verdict, os.listdir(found.artifacts)) == (Verdict.MISSING, [])
    assert UNARMED[text] in found.reason
