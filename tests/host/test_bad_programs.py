"""Programs that leave no evidence, or spoil it: the sweep says so, and the program's own end is what it was."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from aorta_collectors.schema_check import first_error
from tests.host.support import PROGRAM, Sweep, mitigations, once, probe_recipe, sweep_command
from tests.support import PYTHON, TRAIN, run

pytestmark = pytest.mark.sweep

#: SPOIL says what happens to the evidence. Exit handlers run in reverse order of registration, so those registered
#: here, before torch is imported, run after the collector's own.
SPOILER = (
    """
import atexit, os, resource, shutil, sys
from pathlib import Path

spoil = os.environ.get("SPOIL", "")
mine = Path(os.environ.get("NANLOG_DIR", ""))
old = Path(*mine.parts[:-4], "none-none", *mine.parts[-3:])
if spoil == "restore-all":
    atexit.register(lambda: shutil.copytree(old, mine, dirs_exist_ok=True))
if spoil == "restore-records":
    atexit.register(lambda: shutil.copy(old / "layers_rank0.jsonl", mine))
if spoil == "edit-summary":
    atexit.register(lambda: (mine / "summary_rank0.json").write_text("{}"))
if spoil == "lone-layer":
    from torch import nn

    model = nn.Linear(2, 2)
    sys.exit(0)
if spoil == "fill-disk":
    resource.setrlimit(resource.RLIMIT_FSIZE, (6000, 6000))
"""
    + PROGRAM
)

FULL_DISK = """
import errno, os
import torch
from torch import nn

model, filler = nn.Linear(4, 4), os.path.join(os.environ["NANLOG_DIR"], "..", "filler")
for step in range(1, 21):
    model(torch.ones(1, 4)).sum().backward()
    if step == 2:
        with open(filler, "wb", buffering=0) as stream:
            try:
                while True:
                    stream.write(bytes(512))
            except OSError as error:
                assert error.errno == errno.ENOSPC, error
# Its own output goes to the same disk, so there has to be room for that again.
os.remove(filler)
print("trained", flush=True)
"""

EVERY_STEP = {"layer_numerics": {"NANLOG_SAMPLE_EVERY": "1"}}
MODES = ["exit-early", "no-model", "never-called", "raise", "kill", "exit-hard", "delete", "replace", "link"]
SPOILS = ["lone-layer", "restore-all", "restore-records", "edit-summary", "fill-disk"]

#: By cell: verdict, a part of the reason, and how the program itself ended.
EXPECTED = {
    "exit-early": ("missing", "before it imported torch", 0),
    "no-model": ("unattached", "built no PyTorch model", 0),
    "never-called": ("unattached", "called none of them", 0),
    "lone-layer": ("unattached", "called none of them", 0),
    "raise": ("incomplete", "step 3 with RuntimeError: boom", 1),
    "kill": ("incomplete", "died in step 3", -9),
    "delete": ("missing", "is gone", 0),
    "replace": ("missing", "removed its artifacts", 0),
    "link": ("invalid", "symbolic link", 0),
    "restore-all": ("stale", "another run", 0),
    "restore-records": ("stale", "not from this trial", 0),
    "edit-summary": ("invalid", "summary_rank0.json", 0),
    "fill-disk": ("incomplete", "could not write on", 0),
}
FAILED = ("raise", "kill")
SPOILED = [name for name in EXPECTED if name not in FAILED]


def _sweep(directory: Path) -> Sweep:
    (directory / "train.py").write_text(SPOILER)
    bundles = {mode: {"TRAIN_ARGS": f"--mode {mode}"} for mode in MODES} | {name: {"SPOIL": name} for name in SPOILS}
    file = mitigations(directory / "m.json", bundles)
    recipe = probe_recipe(directory / "r.yaml", ["none", *bundles], collect=EVERY_STEP)
    # What an earlier run, of another installation perhaps, has left where this trial's evidence belongs.
    planted = directory / "out" / "T-1" / "exit-early-none" / "_subprocess" / "trial_d0_m0_t0" / "layer_numerics"
    run(
        [PYTHON, "-m", "aorta_collectors.layer_numerics", "-c", TRAIN],
        directory,
        {"NANLOG_DIR": str(planted), "NANLOG_SAMPLE_EVERY": "1"},
    ).ok()
    assert (planted / "summary_rank0.json").exists()
    return sweep_command(directory, recipe, ["python", "train.py"], "--mitigations-file", str(file))


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    return once(tmp_path_factory, "bad_programs", _sweep)


@pytest.fixture(scope="module")
def plain_stdout(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What the program prints when nobody watches."""
    return run([PYTHON, "-c", TRAIN], tmp_path_factory.mktemp("plain")).ok().out.splitlines(keepends=True)


@pytest.mark.parametrize("name", EXPECTED)
def test_the_receipt_says_what_is_wrong(sweep: Sweep, name: str) -> None:
    verdict, reason, _ = EXPECTED[name]
    receipt = sweep.receipt(name)
    assert first_error("receipt", receipt) is None
    assert receipt["verdict"] == verdict, receipt["reason"]
    assert reason in receipt["reason"]
    # What was seen before a process died is told; without evidence there is nothing to tell.
    assert ("layer_numerics_steps" in receipt["metrics"]) == (verdict == "incomplete")


@pytest.mark.parametrize("name", SPOILED)
def test_a_pass_without_evidence_becomes_an_error_with_the_reason(sweep: Sweep, name: str) -> None:
    receipt, trial, command = sweep.receipt(name), sweep.trial(name), sweep.command(name)
    result = trial["result"]
    assert result["passed"] is False
    assert result["metrics"]["verdict"] == "error"
    (detail,) = result["failure_details"]
    assert (detail["collector"], detail["verdict"]) == ("layer_numerics", receipt["verdict"])
    assert receipt["reason"] in detail["error"]
    fired = [f"collect:layer_numerics:{receipt['verdict']}"]
    assert result["metrics"]["error_detectors_fired"] == fired
    assert (command["verdict"], command["error_detectors_fired"]) == ("error", fired)
    row = sweep.cell(name)
    assert row["passed_count"] == 0
    assert row["error_rate"] == 1.0


@pytest.mark.parametrize("name", FAILED)
def test_a_failure_stays_a_failure(sweep: Sweep, name: str) -> None:
    trial = sweep.trial(name)
    assert trial["result"]["metrics"]["verdict"] == "fail"
    assert trial["result"]["metrics"]["error_detectors_fired"] == []
    own, ours = trial["result"]["failure_details"]
    assert own["type"] == "subprocess_nonzero_exit"
    assert (ours["collector"], ours["verdict"]) == ("layer_numerics", "incomplete")
    assert sweep.command(name)["verdict"] == "fail"
    assert sweep.cell(name)["failure_rate"] == 1.0
    assert sweep.cell(name)["error_rate"] == 0.0


@pytest.mark.parametrize("name", EXPECTED)
def test_the_programs_exit_code_and_stdout_are_unchanged(sweep: Sweep, name: str, plain_stdout: list[str]) -> None:
    _, _, code = EXPECTED[name]
    assert sweep.command(name)["exit_code"] == code
    steps = {"raise": 2, "kill": 2, "exit-early": 0, "never-called": 0, "lone-layer": 0}.get(name, 5)
    expected = ["nothing to do\n"] if name == "no-model" else plain_stdout[:steps]
    assert sweep.stdout(name) == "".join(expected)


def test_the_sweep_exits_1_and_names_each_cell(sweep: Sweep) -> None:
    assert sweep.ran.code == 1
    error = sweep.ran.err.splitlines()[-1]
    assert error.startswith(f"Error: {len(EXPECTED)} of {len(EXPECTED) + 2} requests for evidence not satisfied")
    assert all(f"{name}-none" in error for name in EXPECTED)
    assert "none-none" not in error


def test_a_good_cell_beside_bad_ones_passes(sweep: Sweep, plain_stdout: list[str]) -> None:
    assert sweep.receipt("none")["verdict"] == "captured"
    assert sweep.command("none")["verdict"] == "pass"
    assert sweep.stdout("none") == "".join(plain_stdout)


def test_a_program_that_leaves_without_exit_handlers_has_been_captured_all_the_same(
    sweep: Sweep, plain_stdout: list[str]
) -> None:
    """os._exit(0) in step 3."""
    assert sweep.receipt("exit-hard")["verdict"] == "captured"
    assert sweep.receipt("exit-hard")["reason"] == "2 module(s) over 3 step(s), 1 rank(s)"
    assert sweep.stdout("exit-hard") == "".join(plain_stdout[:2])


def test_a_killed_program_leaves_the_last_step_that_was_seen(sweep: Sweep) -> None:
    (process,) = sweep.receipt("kill")["details"]["processes"]
    assert (process["status"], process["steps_seen"]) == ("running", 3)


def test_an_uncaught_exception_prints_its_own_traceback_only(sweep: Sweep) -> None:
    stderr = (sweep.command_dir("raise") / "stderr.log").read_text()
    trace = stderr[stderr.index("Traceback") :]
    assert "RuntimeError: boom\n" in trace
    assert "aorta_collectors" not in trace


def test_old_files_in_the_trials_directory_do_not_pass_for_new_ones(sweep: Sweep) -> None:
    assert sweep.receipt("exit-early")["files"] == {}
    assert not list(sweep.artifacts("exit-early").iterdir())


def test_nothing_is_written_through_a_link_that_the_program_made(sweep: Sweep) -> None:
    assert sweep.artifacts("link").is_symlink()
    assert sweep.receipt("link")["files"] == {}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"a tmpfs cannot be mounted here: {mounted.stderr.strip()}")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_full_disk_is_an_incomplete_capture_and_no_trouble_for_the_program(tmp_path: Path, small_disk: Path) -> None:
    (tmp_path / "train.py").write_text(FULL_DISK)
    recipe = probe_recipe(tmp_path / "r.yaml", collect=EVERY_STEP)
    sweep = sweep_command(tmp_path, recipe, ["python", "train.py"], output="disk")
    assert sweep.run_dir.is_relative_to(small_disk)
    assert sweep.ran.code == 1
    assert sweep.stdout() == "trained\n"
    assert sweep.command()["exit_code"] == 0
    receipt = sweep.receipt()
    assert receipt["verdict"] == "incomplete", receipt["reason"]
    assert "No space left on device" in receipt["reason"]
    assert sweep.command()["verdict"] == "error"


def test_a_results_directory_that_cannot_be_made_is_a_clean_error(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    (tmp_path / "file").write_text("not a directory")
    recipe = probe_recipe(tmp_path / "r.yaml", collect=EVERY_STEP)
    sweep = sweep_command(tmp_path, recipe, ["python", "train.py"], output="file/out")
    assert sweep.ran.code != 0
    assert "captured" not in sweep.ran.out
    assert "aorta_collectors" not in sweep.ran.err  # none of our frames in a traceback


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes to read-only directories too")
def test_a_read_only_results_directory_is_a_clean_error(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    (tmp_path / "closed").mkdir(mode=0o500)
    recipe = probe_recipe(tmp_path / "r.yaml", collect=EVERY_STEP)
    sweep = sweep_command(tmp_path, recipe, ["python", "train.py"], output="closed")
    assert sweep.ran.code != 0
    assert "captured" not in sweep.ran.out
