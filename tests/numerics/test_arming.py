"""Arming from the environment: in each process that a sweep's command starts, beside another collector if need be."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aorta_collectors.environment import ARM_VARIABLE
from aorta_collectors.layer_numerics import names as layer_names
from aorta_collectors.numerics import names
from aorta_collectors.numerics.config import Config
from tests.numerics.left import TRAIN, Left
from tests.support import PYTHON, Ran, records, run

BOTH = {
    ARM_VARIABLE: f"{layer_names.ARM_FUNCTION} {names.ARM_FUNCTION}",
    "NANLOG_DIR": "layers",
    "NANLOG_RUN_ID": "the trial",
    "NANLOG_SAMPLE_EVERY": "1",
    "NUMERICS_DIR": "numerics",
    "NUMERICS_RUN_ID": "the trial",
    "NUMERICS_TRACE": "layer",
}


@pytest.fixture(autouse=True)
def default_signals() -> Iterator[None]:
    """Programs start as from a terminal, also where the tests run below nohup, which has SIGHUP ignored."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGHUP, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def both(cwd: Path, at_3: str = "", code: str = TRAIN, **env: str) -> Ran:
    (cwd / "train.py").write_text(code)
    return run([PYTHON, "-m", "aorta_collectors.frontend", "train.py"], cwd, {**BOTH, "AT_3": at_3, **env})


def summaries(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(directory.glob("summary_*.json"))]


class TestBoth:
    """Each collector's evidence is as if it were alone."""

    def found(self, cwd: Path) -> tuple[dict[str, Any], dict[str, Any]]:
        (layers,) = summaries(cwd / "layers")
        numerics = Left(cwd / "numerics").summary
        written = {kind: len(Left(cwd / "numerics").lines(kind)) for kind in numerics["files"]}
        told = {kind: counts["written"] for kind, counts in numerics["files"].items()}
        assert written == told or numerics["status"] == "running"
        return layers, numerics

    @pytest.mark.parametrize(
        ("at_3", "code", "ended_by", "steps"),
        [("", 0, "exit", 5), ("raise ValueError('no')", 1, "ValueError: no", 3), ("os._exit(3)", 3, "os._exit 3", 3)],
    )
    def test_an_end_that_is_told_is_told_to_both(
        self, tmp_path: Path, at_3: str, code: int, ended_by: str, steps: int
    ) -> None:
        assert both(tmp_path, at_3).code == code
        for found in self.found(tmp_path):
            assert (found["status"], found["ended_by"], found["steps_seen"]) == ("complete", ended_by, steps)
            assert (found["hook_errors"], found["run_id"]) == (0, "the trial")
        assert {record["step"] for record in records(tmp_path / "layers" / "layers_rank0.jsonl")} == {
            *range(1, steps + 1)
        }

    def test_a_signal_that_kills_leaves_a_note_beside_each(self, tmp_path: Path) -> None:
        assert both(tmp_path, "os.kill(os.getpid(), signal.SIGTERM)").code == -signal.SIGTERM
        for found, name in zip(self.found(tmp_path), ("layers", "numerics"), strict=True):
            assert (found["status"], found["steps_seen"]) == ("running", 3)
            assert "<module>" in (tmp_path / name / "sigterm_rank0.txt").read_text()

    def test_where_one_stops_the_line_the_other_is_complete(self, tmp_path: Path) -> None:
        at_3 = "model(torch.full((1, 4), float('nan')))\n"
        ran = both(tmp_path, f"try: {at_3}except SystemExit: os._exit(0)", NUMERICS_ON_BAD="stop")
        assert ran.code == names.EXIT_STOPPED
        layers, numerics = self.found(tmp_path)
        assert (layers["status"], layers["first_bad"]["layer"]) == ("complete", "0")
        assert numerics["stopped"]["layer"] == "0"

    def test_each_is_armed_in_children_of_a_fork_server(self, tmp_path: Path) -> None:
        code = (
            "import multiprocessing\n"
            f"def work(_):\n    exec({TRAIN!r}, {{}})\n"
            "if __name__ == '__main__':\n"
            "    context = multiprocessing.get_context('forkserver')\n"
            "    context.set_forkserver_preload(['torch'])\n"
            "    child = context.Process(target=work, args=(0,))\n"
            "    child.start()\n    child.join()\n    raise SystemExit(child.exitcode)\n"
        )
        (tmp_path / "train.py").write_text(code)
        site = {"PYTHONPATH": str(Path(layer_names.__file__).parent.parent / "frontend" / "site")}
        run([PYTHON, "train.py"], tmp_path, {**BOTH, **site}).ok()
        for name in ("layers", "numerics"):
            (found,) = summaries(tmp_path / name)
            assert (found["status"], found["ended_by"], found["steps_seen"]) == ("complete", "exit", 5)


def test_a_summary_is_whole_and_one_step_behind_at_most_at_any_moment(tmp_path: Path) -> None:
    """What a reader finds while the program runs on, and what a SIGKILL leaves."""
    (tmp_path / "train.py").write_text(TRAIN.replace("range(1, 6)", "range(1, 10**9)"))
    argv = [PYTHON, "-m", "aorta_collectors.numerics", "--dir", "out", "train.py"]
    with subprocess.Popen(argv, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            step = int(line)
            found = Left(tmp_path / "out").summary
            assert (found["status"], found["steps_seen"] >= step) == ("running", True)
            if step == 20:
                process.kill()
                break
    left = Left(tmp_path / "out")
    steps = [line["step"] for line in left.lines("steps")]
    seen = left.summary["steps_seen"]
    # It may be killed between the line of a step and the beginning of the next.
    assert steps in (list(range(1, seen)), list(range(1, seen + 1)))
    assert max(span["step"] for span in left.lines("spans")) >= left.summary["steps_seen"] - 1


class TestConfigured:
    def test_what_has_no_effect_is_told(self) -> None:
        config = Config.configured(
            {"NUMERICS_TRACE": "none", "NUMERICS_STEPS": "embed", "NUMERICS_CV_THRESHOLD": "0.5"}
        )
        assert config.steps == ("embed",)
        assert config.warnings == (
            "NUMERICS_CV_THRESHOLD has no effect while profile is off; it decides which timed bricks are escalated",
            "NUMERICS_STEPS has no effect with trace: none; it says what is traced",
        )

    @pytest.mark.parametrize("environ", [{}, {"NUMERICS_PROFILE": "deferred", "NUMERICS_RATE_LIMIT": "3"}])
    def test_what_can_be_honoured_is_no_reason_to_warn(self, environ: dict[str, str]) -> None:
        assert Config.configured(environ).warnings == ()


def test_the_sweeps_side_and_the_program_agree_on_names() -> None:
    assert names.PROCESS.records == "spans"
    assert names.PROCESS.directory_variable == f"{names.PREFIX}DIR"
    assert os.path.basename(names.PROCESS.default_directory) == "numerics_out"
