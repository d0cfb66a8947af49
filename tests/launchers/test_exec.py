"""A program that leaves by os.exec*, or by os._exit from odd places, leaves its own evidence whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from aorta_collectors.api import Verdict
from aorta_collectors.layer_numerics.names import RUN_ID_VARIABLE
from tests.evidence.conftest import RUN_ID
from tests.evidence.damage import verdict
from tests.host.support import read_json
from tests.support import PYTHON, Ran, records, run, summary

#: Trains for as many steps as it is told, then runs a piece of code, then trains for one more.
TRAIN = """
import os, pickle, sys, threading
import torch
from torch import nn
model = nn.Linear(4, 4)
def train(steps):
    for _ in range(steps):
        model(torch.ones(1, 4)).sum().backward()
train(int(sys.argv[1]))
exec(sys.argv[2])
train(1)
print("over")
"""
RECORDS_OF_A_STEP = 1  # the layer's output: nothing asks for the gradient of what enters it


def train(cwd: Path, steps: int, then: str) -> Ran:
    (cwd / "train.py").write_text(TRAIN)
    (cwd / "text").write_text("neither a binary nor a script\n")
    (cwd / "text").chmod(0o755)
    env = {"NANLOG_DIR": "out", "NANLOG_SAMPLE_EVERY": "1", RUN_ID_VARIABLE: RUN_ID}
    return run([PYTHON, "-m", "aorta_collectors.layer_numerics", "train.py", str(steps), then], cwd, env)


def end(directory: Path) -> tuple[Any, ...]:
    found = summary(directory)
    return found["status"], found["ended_by"], found["steps_seen"]


def test_each_program_is_observed_to_its_last_step(tmp_path: Path) -> None:
    again = """
left = int(os.environ.get("LEFT", 1))
os.environ["LEFT"] = str(left - 1)
if left:
    os.execlp("python", "python", *sys.argv)
"""
    assert train(tmp_path, 3, again).ok().out == "over\n"
    out = tmp_path / "out"
    assert end(out) == ("complete", "os.execv python", 3)
    assert len(records(out / "layers_rank0.jsonl")) == 3 * RECORDS_OF_A_STEP
    ends = sorted((read["steps_seen"], read["ended_by"]) for read in map(read_json, out.glob("summary_*.json")))
    assert ends == [(3, "os.execv python"), (4, "exit")]
    found, reason = verdict(out)
    assert (found, reason.partition(",")[0]) == (Verdict.CAPTURED, "1 module(s) over 4 step(s)")


def test_a_program_that_has_called_no_model_leaves_all_to_the_one_that_takes_its_place(tmp_path: Path) -> None:
    train(tmp_path, 0, "os.execv(sys.executable, ['python', 'train.py', '1', 'pass'])").ok()
    assert end(tmp_path / "out") == ("complete", "exit", 2)
    assert verdict(tmp_path / "out")[0] is Verdict.CAPTURED


def test_what_is_not_there_fails_as_usual_and_a_child_may_give_way(tmp_path: Path) -> None:
    then = """
assert pickle.loads(pickle.dumps(os.execv)) is os.execv
for call in (lambda: os.execvp('nowhere', ['x']), lambda: os.execve('text/', ['x'], {}), lambda: os.execv(None, [])):
    try:
        call()
    except (OSError, TypeError) as error:
        print(type(error).__name__)
print(os.spawnlp(os.P_WAIT, 'true', 'true'))
"""
    ran = train(tmp_path, 1, then).ok()
    assert ran.out.splitlines() == ["FileNotFoundError", "NotADirectoryError", "TypeError", "0", "over"]
    assert end(tmp_path / "out") == ("complete", "exit", 2)
    assert verdict(tmp_path / "out")[0] is Verdict.CAPTURED


def test_one_that_could_not_give_way_after_all_is_no_evidence_of_what_came_then(tmp_path: Path) -> None:
    then = "try:\n    os.execv('text', ['text'])\nexcept OSError as error:\n    print(error)"
    ran = train(tmp_path, 2, then).ok()
    assert ran.out == "[Errno 8] Exec format error\nover\n"
    status, ended_by, steps = end(tmp_path / "out")
    assert (status, steps) == ("ended", 2)
    assert ended_by == "os.execv failed: OSError: [Errno 8] Exec format error; what came then was not observed"
    assert verdict(tmp_path / "out")[0] is Verdict.INCOMPLETE


def test_another_thread_that_fails_to_give_way_disturbs_nothing(tmp_path: Path) -> None:
    then = "thread = threading.Thread(target=os.execv, args=('text', ['text']))\nthread.start()\nthread.join()"
    assert "Exec format error" in train(tmp_path, 2, then).ok().err
    assert end(tmp_path / "out") == ("complete", "exit", 3)
    assert verdict(tmp_path / "out")[0] is Verdict.CAPTURED


def test_an_exit_handler_may_leave_though_no_thread_can_be_started_any_more(tmp_path: Path) -> None:
    """From Python 3.12 on none can be then; a status that is no exit status ends nothing."""
    then = """
import _thread, atexit
try:
    os._exit(2**40)
except OverflowError:
    pass
def leave():
    def refuse(*_):
        raise RuntimeError("can't create new thread at interpreter shutdown")
    _thread.start_new_thread = refuse
    os._exit(0)
atexit.register(leave)
"""
    assert train(tmp_path, 1, then).ok().out == "over\n"
    assert end(tmp_path / "out") == ("complete", "os._exit 0", 2)
    assert verdict(tmp_path / "out")[0] is Verdict.CAPTURED
