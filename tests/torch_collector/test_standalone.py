"""The command line of a collector: an option for each of its own, and the program as it would be."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.support import PYTHON, ROOT, run
from tests.torch_collector.pulse import command_line
from tests.torch_collector.test_collector import TRAIN

COMMAND = "import sys; from tests.torch_collector.pulse import command_line; command_line().standalone().run"


def refusal(words: list[str], capsys: pytest.CaptureFixture[str], **options: object) -> str:
    with pytest.raises(SystemExit) as caught:
        command_line(**options).standalone().run([*words, "-c", "raise AssertionError('it runs')"], "COMMAND")  # type: ignore[arg-type]
    assert caught.value.code == 2
    return capsys.readouterr().err.removeprefix("COMMAND: ").rstrip("\n")


def test_there_is_an_option_for_each_of_the_schema_and_a_directory() -> None:
    found = command_line(other_names={"most": "--most-steps"}).standalone()
    assert list(found.options) == ["--points", "--most-steps", "--ends", "--dir"]
    found.options["--most-steps"]("3")
    found.options["--dir"]("there")
    assert (os.environ["PULSE_MOST"], os.environ["PULSE_DIR"]) == ("3", "there")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--most", "many"], '--most must be an integer >= 0, got "many"'),
        (["--on-missing", "warn"], "unknown option --on-missing"),
        (["--dir="], "--dir needs a directory"),
        (["--most=0", "--points=after_step"], "--points: has no effect with most: 0"),
    ],
)
def test_what_cannot_be_taken_is_refused(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert refusal(words, capsys) == message


def test_a_collector_may_refuse_what_is_in_force(capsys: pytest.CaptureFixture[str]) -> None:
    def begin(config: object) -> None:
        raise ValueError(f"not {config.describe()['most']} of them")  # type: ignore[attr-defined]

    assert refusal(["--most", "7"], capsys, begin=begin) == "not 7 of them"


def test_help_has_every_option_and_where_files_go(capsys: pytest.CaptureFixture[str]) -> None:
    command_line().standalone().run(["--help"], "pulse")
    told = capsys.readouterr().out
    assert "  --most\n      Steps that are counted.\n" in told
    assert told.endswith("\nexample: pulse --most 3 train.py\n")
    assert "Files go to --dir, or PULSE_DIR (default pulse_out)." in " ".join(told.split())


def test_the_program_runs_observed(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN + "import sys; print(sys.argv)\n")
    code = f"{COMMAND}(['--most', '2', '--dir', 'there', 'train.py', '--most', '9'], 'pulse')"
    ran = run([PYTHON, "-c", code], tmp_path, {"PYTHONPATH": str(ROOT)}).ok()
    assert ran.out == "['train.py', '--most', '9']\n"
    found = json.loads((tmp_path / "there" / "summary_rank0.json").read_text())
    assert (found["pulse"], found["config"]["most"]) == ({"after_forward": 2}, 2)
