"""`aorta-collectors top`: on a terminal, with its keys, in a pipe, as JSON, and what it asserts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.screen import COMMAND, NORMAL, Screen, restored
from tests.numerics.synthetic import brick, write
from tests.support import PYTHON, TRAIN, run

PROFILE = {"profile": "deferred"}
RUNNING = {"status": "running", "ended_by": None, "host": "elsewhere"}


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """Of two bricks: one takes a third of the time and reaches 80 % of the roofline, the other 20 %."""
    bricks = [brick("fast", self_us=400.0, efficiency=0.8), brick("slow", self_us=800.0, efficiency=0.2)]
    return write(tmp_path / "out", config=PROFILE, bricks=bricks, spans=[], summary=RUNNING)


def test_keys_sort_and_quit(out: Path) -> None:
    screen = Screen(str(out), "--interval", "0.2", verb="top")
    try:
        screen.until("s sorts (now by time)")
        screen.press(b"ss")
        screen.until("s sorts (now by CV)")
        screen.press(b"q")
        assert screen.ended() == 0
        assert restored(screen)
        assert "slow" in screen.text[screen.text.rindex(NORMAL) :]  # what was seen last stays
    finally:
        screen.close()


def test_it_ends_with_the_run_and_asserts_then(out: Path) -> None:
    screen = Screen(str(out), "--interval", "0.2", "--assert-efficiency", "0.5", verb="top")
    try:
        screen.until("q quits")
        write(out, config=PROFILE, bricks=[brick("slow", efficiency=0.2)], spans=[])
        assert screen.ended() == 3
        assert "efficiency is 0.2, less than the 0.5 asserted" in screen.text[screen.text.rindex(NORMAL) :]
    finally:
        screen.close()


def test_once_json_and_what_is_asserted(out: Path, tmp_path: Path) -> None:
    once = run([COMMAND, "top", str(out), "--once", "--assert-efficiency", "0.39"], tmp_path).ok()
    assert "bricks, all 4 steps" in once.out
    found = run([COMMAND, "top", str(out), "--once", "--json", "--assert-efficiency", "0.41"], tmp_path)
    assert (found.code, found.err) == (3, "efficiency is 0.4, less than the 0.41 asserted\n")
    (line,) = found.out.splitlines()
    told = json.loads(line)
    assert (told["state"], told["efficiency"]) == ("running", 0.4)
    assert [entry["layer"] for entry in told["bricks"]] == ["slow", "fast"]


def test_what_cannot_be_told_is_an_error(tmp_path: Path) -> None:
    out = write(tmp_path / "out", config={})
    unknown = run([COMMAND, "top", str(out), "--once", "--assert-efficiency", "0.5"], tmp_path)
    assert unknown.code == 1
    assert "the efficiency of bricks is not known" in unknown.err
    nothing = run([COMMAND, "top", "nowhere"], tmp_path)  # a pipe
    assert nothing.code == 1
    assert "nowhere does not exist yet" in nothing.err
    assert run([COMMAND, "top", str(out), "--json"], tmp_path).code == 2


def test_beside_a_real_program(tmp_path: Path) -> None:
    """It waits for the directory, shows the program's modules, and ends with it."""
    (tmp_path / "train.py").write_text(TRAIN)
    screen = Screen(str(tmp_path / "out"), "--interval", "0.2", verb="top")
    try:
        screen.until("waiting")
        command = [PYTHON, "-m", "aorta_collectors.numerics", "--profile", "deferred", "train.py", "--steps", "30"]
        run(command, tmp_path, {"NUMERICS_DIR": "out", "NUMERICS_ESCALATE": "off"}).ok()
        assert screen.ended() == 0
        left = screen.text[screen.text.rindex(NORMAL) :]
        assert "all processes have ended" in left
        for wanted in ("loss ", "EMA(0.9)", "named step", "FORWARD"):
            assert wanted in left
    finally:
        screen.close()
