"""An investigation that is ended in the middle keeps what was done, ends what it had started, and goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from aorta_collectors.investigate.design import Design
from tests.investigate.support import OURS, OUTSIDE_GIT, declared, investigate, record
from tests.support import BIN, interruptible

pytestmark = pytest.mark.sweep

#: Says that it runs, and ends only where it is told to.
WAITING = """
import os, pathlib, time
pathlib.Path("pid").write_text(str(os.getpid()))
while not os.path.exists("go"):
    time.sleep(0.05)
print("went")
"""


def wait_for(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@contextmanager
def running(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """An investigation whose program is waiting, and the program's pid."""
    (tmp_path / "pid").unlink(missing_ok=True)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHONPATH", "AORTA_"))}
    environment = {**inherited, **OUTSIDE_GIT, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [OURS, "investigate", "run", "root"],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=interruptible,
    )
    try:
        wait_for(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text() != "")
        yield process, int((tmp_path / "pid").read_text())
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    commands = {"baseline": "python train.py"}
    design = Design.of("finite", observer_effect=False)
    made = declared(tmp_path / "root", tmp_path, commands=commands, design=design)
    (tmp_path / "train.py").write_text(WAITING)
    return made.investigation.root


def test_one_that_is_interrupted_says_how_to_go_on_and_one_that_is_killed_goes_on_too(
    tmp_path: Path, root: Path
) -> None:
    with running(tmp_path) as (process, program):
        second = investigate(tmp_path, "run", "root")
        assert (second.code, "another call runs" in second.err) == (1, True)
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=60)
        assert process.returncode == 130
        assert "To go on: aorta-collectors investigate run root" in told
        assert not is_alive(program)
    first = record(root, "001-baseline-1")
    assert (first["state"], first["attempt"]) == ("interrupted", 1)
    assert first["reason"] == "ended by KeyboardInterrupt"
    assert first["sha256"]

    with running(tmp_path) as (process, program):
        assert record(root, "001-baseline-1-attempt2")["state"] == "running"
        process.kill()
        process.wait()
        wait_for(lambda: not is_alive(program))

    (tmp_path / "go").touch()
    done = investigate(tmp_path, "run", "root", env={"OMP_NUM_THREADS": "1"})
    assert "0 completed, 1 failed, 0 left" in done.out
    assert record(root, "001-baseline-1") == first
    killed = record(root, "001-baseline-1-attempt2")
    assert (killed["state"], killed["ended_at"]) == ("interrupted", None)
    third = record(root, "001-baseline-1-attempt3")
    assert (third["state"], third["attempt"]) == ("failed", 3)
    assert third["reason"].startswith("no evidence of layer_numerics: ")
    assert "went" in (root / "runs" / "001-baseline-1-attempt3" / "stdout.log").read_text()


def test_a_sweep_that_is_killed_is_interrupted_and_its_program_is_ended(tmp_path: Path, root: Path) -> None:
    with running(tmp_path) as (process, program):
        sweep = int(Path(f"/proc/{program}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(sweep, signal.SIGKILL)
        _, told = process.communicate(timeout=60)
        assert process.returncode == 130
        assert "A sweep was killed" in told
        assert not is_alive(program)
    found = record(root, "001-baseline-1")
    assert (found["state"], found["reason"]) == ("interrupted", "its sweep was killed by SIGKILL")
