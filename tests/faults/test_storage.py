"""Disks that are full, and results directories that vanish while a trial runs: no evidence, no pass, no harm."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.sweeps import EVERY_STEP, PROGRAM, verified
from tests.host.support import Sweep, mitigations, probe_recipe, sweep_command
from tests.support import PYTHON, run

pytestmark = pytest.mark.sweep

#: `root` is the sweep's run directory.
ROOT = "import shutil\nroot = os.environ['NANLOG_DIR'].split('/faulted-none')[0]\n"
FILLS_UP = """
with open(os.path.join(root, "filler"), "wb", buffering=0) as stream:
    try:
        while True:
            stream.write(bytes(512))
    except OSError:
        pass
"""
VANISHES = {
    "removed": "shutil.rmtree(root)",
    "replaced": "os.rename(root, root + '-moved'); os.mkdir(root)",
}


def sweep(cwd: Path, **faulted: str) -> Sweep:
    """A good cell, then one with what `faulted` makes the program do."""
    (cwd / "train.py").write_text(PROGRAM)
    file = mitigations(cwd / "m.json", {"faulted": {name: ROOT + code for name, code in faulted.items()}})
    recipe = probe_recipe(cwd / "r.yaml", ["none", "faulted"], collect=EVERY_STEP)
    return sweep_command(cwd, recipe, ["python", "train.py"], "--mitigations-file", str(file))


@pytest.fixture(scope="module")
def losses(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the program prints when nobody watches."""
    place = tmp_path_factory.mktemp("bare")
    (place / "train.py").write_text(PROGRAM)
    return run([PYTHON, "train.py"], place).ok().out


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MB, where the sweeps of a test write to."""
    disk = tmp_path / "out"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)]
    mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"a tmpfs cannot be mounted here: {mounted.stderr.strip()}")
    yield disk
    subprocess.run(["umount", str(disk)], check=False)


def test_a_disk_that_is_full_when_the_receipt_is_to_be_written(small_disk: Path, losses: str) -> None:
    cwd = small_disk.parent
    full = sweep(cwd, AT_END=FILLS_UP)
    assert full.ran.code == 1
    assert full.ran.err.splitlines()[-1].startswith("Error: ")
    assert "No space left on device" in full.ran.err.splitlines()[-1]
    assert "No space left on device" in full.ran.out
    assert full.stdout("faulted") == losses
    assert not list(full.cell_dir("faulted").glob("receipt_*"))
    found = verified(full.run_dir, cwd)
    assert (found.code, found.verdicts) == (1, {"none-none": "captured", "faulted-none": "missing"})


@pytest.mark.parametrize("how", VANISHES)
def test_a_results_directory_that_vanishes(tmp_path: Path, losses: str, how: str) -> None:
    found = sweep(tmp_path, AT_3=VANISHES[how])
    assert found.ran.code == 1
    assert found.ran.err.splitlines()[-1].startswith("Error: ")
    assert "captured" not in found.ran.out
    assert "faulted-none  -      layer_numerics  missing" in found.ran.out
    if how == "removed":
        assert list(tmp_path.glob("out/*")) == []
        return
    moved = tmp_path / "out" / "T-1-moved"
    assert (moved / "faulted-none" / "trial_0" / "stdout.log").read_text() == losses
    assert verified(moved, tmp_path).verdicts == {"none-none": "captured", "faulted-none": "missing"}
    assert verified(found.run_dir, tmp_path).verdicts == {"none-none": "missing", "faulted-none": "missing"}


def test_a_sweep_that_cannot_record_what_it_was_asked_for_does_not_pass_and_the_next_one_does_not_begin(
    tmp_path: Path,
) -> None:
    code = "os.remove(root + '/evidence.json'); os.mkdir(root + '/evidence.json')"
    first = sweep(tmp_path, AT_3=code)
    assert first.ran.code == 1
    assert "Error: what this sweep was asked for cannot be recorded: out/T-1/evidence.json: " in first.ran.err
    assert first.receipt("faulted")["verdict"] == "captured"
    assert "Traceback" not in first.ran.err

    second = sweep(tmp_path, AT_3=code)
    assert second.ran.code == 1
    assert "Error: nothing was run, since no evidence can be kept: out/T-1/evidence.json: " in second.ran.err
    assert (tmp_path / "runs_").read_text() == "xx"
