"""`aorta-collectors watch`: on a terminal that is resized, left and lost, in a pipe, and beside a real program."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.captured.synthetic import record, write
from tests.cli.screen import COMMAND, NORMAL, Screen, restored
from tests.support import PYTHON, TRAIN, run


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """Of a program that runs: two ranks, of which one has seen a NaN."""
    bad = [record(5, "fc", high=2.0), record(6, "fc", nans=1)]
    running = {"status": "running", "ended_by": None, "host": "elsewhere"}
    return write(tmp_path / "out", {0: [record(5)], 1: bad}, {0: running, 1: running})


@pytest.fixture
def watched(out: Path) -> Iterator[Screen]:
    screen = Screen(str(out), "--interval", "0.2")
    screen.until("first bad: step 6, rank 1, nan in fc act")
    yield screen
    screen.close()


@pytest.mark.parametrize("keys", [b"q", b"\x03"])
def test_it_is_left_with_a_key(watched: Screen, keys: bytes) -> None:
    lflag = termios.tcgetattr(watched.slave)[3]
    assert not lflag & (termios.ECHO | termios.ICANON)
    watched.press(keys)
    assert watched.ended() == 0
    assert restored(watched)
    assert "first bad: step 6" in watched.text[watched.text.rindex(NORMAL) :]  # what was seen last stays


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_it_is_ended_by_a_signal(watched: Screen, number: signal.Signals) -> None:
    watched.process.send_signal(number)
    assert watched.ended() == 128 + number
    assert restored(watched)


def test_it_ends_when_the_terminal_goes_away(watched: Screen) -> None:
    os.close(watched.master)
    os.close(watched.slave)
    watched.master = watched.slave = -1
    assert watched.process.wait(timeout=60) == 129


def test_it_can_be_stopped_and_go_on(watched: Screen) -> None:
    watched.process.send_signal(signal.SIGTSTP)
    watched.until(NORMAL)
    while _state_of(watched.process.pid) != "T":
        time.sleep(0.02)
    assert restored(watched)
    seen = len(watched.text)
    watched.process.send_signal(signal.SIGCONT)
    watched.until("first bad: step 6", seen)
    watched.press(b"q")
    assert watched.ended() == 0
    assert restored(watched)


def test_a_narrow_terminal_shows_it_at_once(watched: Screen) -> None:
    seen = len(watched.text)
    watched.resize(12, 40)
    end = time.monotonic() + 60
    while True:
        watched.until("q quits", seen)
        # Each drawing begins at the upper left corner.
        drawn = watched.text[seen : watched.text.rindex("q quits")].rpartition("\x1b[H")[2]
        lines = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", drawn).splitlines()
        if len(lines) == 11 and all(len(line) <= 40 for line in lines):
            break
        assert time.monotonic() < end, drawn
        seen = len(watched.text)
    watched.press(b"q")
    assert watched.ended() == 0


def test_it_ends_by_itself_with_the_run(out: Path) -> None:
    screen = Screen(str(out), "--interval", "0.2", "--exit-code")
    try:
        screen.until("ranks: 2 running")
        write(out, {0: [record(9)], 1: [record(9, nans=1)]})
        assert screen.ended() == 3
        assert restored(screen)
        assert "all processes have ended" in screen.text[screen.text.rindex(NORMAL) :]
    finally:
        screen.close()


def test_a_dumb_terminal_gets_lines(out: Path) -> None:
    screen = Screen(str(out), term="dumb")
    try:
        screen.until("first bad: step 6")
        screen.press(b"\x03")
        assert screen.ended() == 0
        assert "\x1b" not in screen.text
    finally:
        screen.close()


def test_beside_a_real_program(tmp_path: Path) -> None:
    """It waits for the directory, tells what is bad, and ends with the program."""
    (tmp_path / "train.py").write_text(TRAIN)
    watching = subprocess.Popen(
        [COMMAND, "watch", "out", "--interval", "0.1", "--exit-code"], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    env = {"NANLOG_DIR": "out", "NANLOG_SAMPLE_EVERY": "1"}
    command = [PYTHON, "-m", "aorta_collectors.layer_numerics", "train.py", "--lr", "2000", "--steps", "30"]
    run(command, tmp_path, env).ok()
    told, _ = watching.communicate(timeout=60)
    assert watching.returncode == 3
    lines = [line[9:] for line in told.splitlines()]
    assert lines[0] == "out: out does not exist yet"
    assert sum(line.startswith("out: first bad: step") for line in lines) == 1
    assert lines[-1] == "all processes have ended"
    assert "\x1b" not in told


def test_once_and_json(captured: Callable[[str], Path], tmp_path: Path) -> None:
    once = run([COMMAND, "watch", str(captured("overflow")), "--once", "--exit-code"], tmp_path)
    assert (once.code, once.err) == (3, "")
    assert "first bad: step 18, huge in over_arch.model.1 igrad[0]" in once.out
    clean = run([COMMAND, "watch", str(captured("clean")), "--json", "--exit-code"], tmp_path).ok()
    (line,) = clean.out.splitlines()
    assert json.loads(line)["state"] == "ended"
    nothing = run([COMMAND, "watch", "nowhere", "--once"], tmp_path)
    assert nothing.code == 1
    assert "nowhere does not exist yet" in nothing.err
    (tmp_path / "other.txt").touch()
    other = run([COMMAND, "watch", "other.txt"], tmp_path)
    assert other.code == 1
    assert "other.txt is no trial's record" in other.err


def _state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
