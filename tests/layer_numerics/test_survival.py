"""However a program ends, what was seen up to the step before is there, whole, and the program has noticed nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aorta_collectors.api import Verdict
from aorta_collectors.layer_numerics.names import RUN_ID_VARIABLE
from tests.evidence.conftest import RUN_ID
from tests.evidence.damage import OPTIONS, verdict
from tests.layer_numerics.armed import ALL, armed
from tests.support import PYTHON, Ran, records, run, summary

#: Prints each step once it is over. What is in AT_3 runs in step 3, between the forward and the backward pass.
TRAIN = """
import ctypes, os, signal, subprocess, sys, threading, time
exec(os.environ.get("AT_START", ""))
import torch
from torch import nn
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
for step in range(1, int(os.environ.get("STEPS", 5)) + 1):
    model.zero_grad()
    loss = model(torch.randn(8, 4)).square().mean()
    if step == 3:
        exec(os.environ.get("AT_3", ""))
    loss.backward()
    print(step, flush=True)
"""
#: Sends a signal from outside, a while after this.
SIGNAL_SOON = "subprocess.Popen(['sh', '-c', f'sleep 0.3; kill -TERM {os.getpid()}'])\n"


def train(cwd: Path, at_3: str = "", **env: str) -> Ran:
    (cwd / "train.py").write_text(TRAIN)
    common = {"NANLOG_DIR": "out", "NANLOG_SAMPLE_EVERY": "1", RUN_ID_VARIABLE: RUN_ID, "AT_3": at_3}
    return run([PYTHON, "-m", "aorta_collectors.layer_numerics", "train.py"], cwd, {**common, **env})


@pytest.fixture(autouse=True)
def default_signals() -> Iterator[None]:
    """Programs start as from a terminal, also where the tests run below nohup, which has SIGHUP ignored."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGHUP, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def own_lines(err: str) -> list[str]:
    """The program's own part of stderr."""
    return [line for line in err.splitlines() if " nanlog: " not in line]


def steps_on_disk(directory: Path) -> dict[int, int]:
    """Records by step. Every line is whole JSON, or reading fails."""
    counts: dict[int, int] = {}
    for record in records(directory / "layers_rank0.jsonl"):
        counts[record["step"]] = counts.get(record["step"], 0) + 1
    return counts


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


FILES = {"layers_rank0.jsonl", "summary_rank0.json"}
#: Activations and input gradients of two layers, but no gradient of what enters the first; in step 3 no backward pass.
WHOLE, HALF = 3, 2

IN_ORDER = {
    "sys.exit": ("sys.exit(4)", 4, "exit"),
    "an exception": ("raise ValueError('no')", 1, "ValueError: no"),
    "KeyboardInterrupt": ("os.kill(os.getpid(), signal.SIGINT)", -2, "KeyboardInterrupt"),
    "os._exit": ("os._exit(3)", 3, "os._exit 3"),
    "os._exit by a name": ("os._exit(status=0)", 0, "os._exit 0"),
}
SUDDEN = {
    "SIGKILL": ("os.kill(os.getpid(), signal.SIGKILL)", -9, None),
    "SIGTERM": ("os.kill(os.getpid(), signal.SIGTERM)", -15, "signal SIGTERM in <string>:1 (<module>)"),
    "a null pointer": ("ctypes.string_at(0)", -11, None),
}


class TestEnds:
    @pytest.mark.parametrize("end", IN_ORDER)
    def test_an_end_that_is_told_is_complete_to_the_last_tensor(self, tmp_path: Path, end: str) -> None:
        at_3, code, ended_by = IN_ORDER[end]
        ran = train(tmp_path, at_3)
        assert (ran.code, ran.out) == (code, "1\n2\n")
        assert bool(own_lines(ran.err)) == (end in ("an exception", "KeyboardInterrupt"))
        found = summary(tmp_path / "out")
        assert (found["status"], found["ended_by"], found["steps_seen"]) == ("complete", ended_by, 3)
        assert steps_on_disk(tmp_path / "out") == {1: WHOLE, 2: WHOLE, 3: HALF}
        assert found["records_written"] == 2 * WHOLE + HALF
        assert names(tmp_path / "out") == FILES
        in_order = ended_by in ("exit", "os._exit 0")
        assert verdict(tmp_path / "out")[0] is (Verdict.CAPTURED if in_order else Verdict.INCOMPLETE)

    @pytest.mark.parametrize("end", SUDDEN)
    def test_a_sudden_end_loses_one_step_at_most(self, tmp_path: Path, end: str) -> None:
        at_3, code, killed_by = SUDDEN[end]
        ran = train(tmp_path, at_3)
        assert (ran.code, ran.out, own_lines(ran.err)) == (code, "1\n2\n", [])
        found = summary(tmp_path / "out")
        assert (found["status"], found["ended_by"], found["steps_seen"]) == ("running", None, 3)
        assert steps_on_disk(tmp_path / "out") == {1: WHOLE, 2: WHOLE}
        assert names(tmp_path / "out") == {*FILES, "sigterm_rank0.txt", "sighup_rank0.txt"}
        reason = f"ended in step 3 with {killed_by}, before anything bad was seen"
        if killed_by is None:
            reason = "died in step 3; evidence ends there"
        assert verdict(tmp_path / "out") == (Verdict.INCOMPLETE, f"rank 0 {reason}")

    def test_a_program_that_is_stopped_after_a_nan_was_seen_has_been_captured(self, tmp_path: Path) -> None:
        nan = "model(torch.full((1, 4), float('nan'))); model(torch.zeros(1, 4)); "
        assert train(tmp_path, f"{nan} os.kill(os.getpid(), signal.SIGTERM)").code == -15
        assert summary(tmp_path / "out")["first_bad"]["step"] == 4
        assert verdict(tmp_path / "out")[0] is Verdict.CAPTURED

    def test_another_thread_leaves_while_the_main_one_is_stuck(self, tmp_path: Path) -> None:
        at_3 = "threading.Thread(target=os._exit, args=(5,)).start()\nctypes.CDLL(None).sleep(60)"
        began = time.monotonic()
        assert train(tmp_path, at_3).code == 5
        assert time.monotonic() - began < 50
        found = summary(tmp_path / "out")
        assert (found["status"], found["ended_by"], found["steps_seen"]) == ("ended", "os._exit 5", 3)
        assert (steps_on_disk(tmp_path / "out"), found["records_written"]) == ({1: WHOLE, 2: WHOLE}, 2 * WHOLE)
        assert names(tmp_path / "out") == FILES


class TestSignals:
    """A signal does what it would do without us."""

    def test_the_program_finds_the_default_handlers_and_so_do_its_forks(self, tmp_path: Path) -> None:
        """A fork leaves no note and no word about its parent, whether it is killed or leaves by itself."""
        at_3 = """
print([signal.getsignal(number).name for number in (signal.SIGTERM, signal.SIGHUP)])
for ends in (lambda: os._exit(7), signal.pause):
    pid = os.fork()
    if pid == 0:
        ends()
    time.sleep(0.2)
    os.kill(pid, signal.SIGTERM)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), os.path.getsize("out/sigterm_rank0.txt"))
"""
        assert train(tmp_path, at_3).ok().out == "1\n2\n['SIG_DFL', 'SIG_DFL']\n7 0\n-15 0\n3\n4\n5\n"
        assert summary(tmp_path / "out")["ended_by"] == "exit"

    def test_a_program_that_is_stuck_in_native_code_is_killed_at_once(self, tmp_path: Path) -> None:
        """PyDLL keeps the interpreter's lock: no thread of Python's runs meanwhile."""
        began = time.monotonic()
        ran = train(tmp_path, f"{SIGNAL_SOON}ctypes.PyDLL(None).sleep(60)")
        assert (ran.code, ran.out) == (-15, "1\n2\n")
        assert time.monotonic() - began < 50
        assert "signal SIGTERM in <string>:2 (<module>)" in verdict(tmp_path / "out")[1]

    def test_handlers_of_the_program_work_as_before_whenever_they_are_installed(self, tmp_path: Path) -> None:
        early = "signal.signal(signal.SIGHUP, lambda number, frame: print('still here'))"
        late = "signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(9))"
        kill = "os.kill(os.getpid(), signal.SIGHUP); os.kill(os.getpid(), signal.SIGTERM)"
        ran = train(tmp_path, f"{late}\n{kill}", AT_START=early)
        assert (ran.code, ran.out, own_lines(ran.err)) == (9, "1\n2\nstill here\n", [])
        assert summary(tmp_path / "out")["status"] == "complete"
        assert names(tmp_path / "out") == FILES

    def test_signals_that_are_ignored_stay_ignored_although_python_may_not_know_of_it(self, tmp_path: Path) -> None:
        ignore = "signal.signal(signal.SIGHUP, signal.SIG_IGN)"
        native = "ctypes.CDLL(None).signal(signal.SIGTERM, ctypes.c_void_p(1))"
        kill = "os.kill(os.getpid(), signal.SIGHUP); os.kill(os.getpid(), signal.SIGTERM)"
        assert train(tmp_path, kill, AT_START=f"{ignore}\n{native}").ok().out.endswith("5\n")


POOL = """
import multiprocessing, sys, time
import torch
from torch import nn

def work(number):
    model = nn.Sequential(nn.Linear(4, 4))
    for _ in range(3):
        model(torch.ones(1, 4)).sum().backward()
    return number

def stay(number):
    work(number)
    time.sleep(0 if number else 60)
    return number

if __name__ == "__main__":
    with multiprocessing.get_context(sys.argv[1]).Pool(2) as pool:
        if sys.argv[2] == "idle":
            print(pool.map(work, [1, 2, 3, 4]))
        else:
            print(next(pool.imap_unordered(stay, [1, 0])))
            time.sleep(1)
"""


class TestPools:
    def left(self, directory: Path, *words: str) -> tuple[Ran, list[dict[str, Any]]]:
        (directory / "pool.py").write_text(POOL)
        argv = [PYTHON, "-m", "aorta_collectors.layer_numerics", "pool.py", *words]
        ran = run(argv, directory, {"NANLOG_DIR": "out", "NANLOG_SAMPLE_EVERY": "1"}).ok()
        return ran, [json.loads(path.read_text()) for path in (directory / "out").glob("summary_*.json")]

    def test_workers_that_have_nothing_to_do_end_in_order(self, tmp_path: Path) -> None:
        """The end of a `with` block ends them by SIGTERM."""
        ran, found = self.left(tmp_path, "forkserver", "idle")
        assert (ran.out, own_lines(ran.err)) == ("[1, 2, 3, 4]\n", [])
        assert {(content["status"], content["ended_by"]) for content in found} == {("complete", "exit")}
        assert sum(content["steps_seen"] for content in found) == 12
        assert sum(content["records_written"] for content in found) == 12
        assert len(names(tmp_path / "out")) == 2 * len(found)

    def test_one_in_the_middle_of_a_task_tells_of_it(self, tmp_path: Path) -> None:
        ran, found = self.left(tmp_path, "spawn", "busy")
        assert ran.out == "1\n"
        ends = {content["status"]: content["ended_by"] for content in found}
        assert ends.pop("ended") == "signal SIGTERM"
        assert ends in ({}, {"complete": "exit"})  # one worker may have taken both tasks
        assert sum(content["records_written"] for content in found) == 5


#: Removes the right that root has to write where nobody may.
_NO_PRIVILEGE = (
    "ctypes.CDLL(None).capset((ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)())\nos.chmod('out', 0o555)\n"
)
#: Nothing is left for a new file, so that files can grow no more either.
_FILL = """
with open("out/filler", "wb", buffering=0) as filler:
    try:
        while filler.write(bytes(100)):
            pass
    except OSError:
        pass
"""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """tmp_path, where out/ is a disk of its own."""
    out = tmp_path / "out"
    out.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(out)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("needs the right to mount a disk")
    yield tmp_path
    subprocess.run(["umount", str(out)], check=True)


class TestDisks:
    """Where evidence cannot be written, training goes on, and what is there stays whole and says why it ends."""

    def whole_but_cut_short(self, cwd: Path, ran: Ran, reason: str, flush_sec: int = 30) -> dict[str, Any]:
        assert ran.ok().out == "".join(f"{step}\n" for step in range(1, 61))
        assert own_lines(ran.err) == []
        assert reason in ran.err
        found = summary(cwd / "out")
        assert found["write_error"].endswith(reason)
        assert (found["status"], found["ended_by"], found["steps_seen"]) == ("complete", "exit", 60)
        assert found["hook_errors"] == 0
        kind, why = verdict(cwd / "out", {**OPTIONS, "NANLOG_FLUSH_SEC": str(flush_sec)})
        assert (kind, reason in why) == (Verdict.INCOMPLETE, True)
        return found

    def test_a_disk_that_records_fill(self, small_disk: Path) -> None:
        ran = train(small_disk, STEPS="60")
        self.whole_but_cut_short(small_disk, ran, "No space left on device")
        assert set(steps_on_disk(small_disk / "out")) >= {1, 2, 3}

    def test_a_disk_that_something_else_fills_so_that_no_new_summary_can_be_written(self, small_disk: Path) -> None:
        ran = train(small_disk, _FILL, STEPS="60", NANLOG_FLUSH_SEC="0")
        found = self.whole_but_cut_short(small_disk, ran, "No space left on device", flush_sec=0)
        assert names(small_disk / "out") == {*FILES, "filler"}
        assert found["records_written"] <= sum(steps_on_disk(small_disk / "out").values())

    def test_a_directory_in_which_nothing_may_be_created_any_more(self, tmp_path: Path) -> None:
        ran = train(tmp_path, _NO_PRIVILEGE, STEPS="60")
        found = self.whole_but_cut_short(tmp_path, ran, "Permission denied")
        assert sum(steps_on_disk(tmp_path / "out").values()) == 60 * WHOLE  # an open file can still grow
        assert found["records_written"] < 60 * WHOLE

    def test_a_directory_that_takes_the_place_of_the_first_one_is_left_alone(self, tmp_path: Path) -> None:
        """It may be that of the next trial, whose note of a signal has the same name, too."""
        again = "os.mkdir('out'); open('out/sigterm_rank0.txt', 'w').write('of the next')"
        ran = train(tmp_path, f"import shutil; shutil.rmtree('out'); {again}", NANLOG_FLUSH_SEC="0")
        assert (ran.ok().out, own_lines(ran.err)) == ("1\n2\n3\n4\n5\n", [])
        assert ran.err.count("could not write: ") == 1
        assert [path.read_text() for path in (tmp_path / "out").iterdir()] == ["of the next"]
        assert verdict(tmp_path / "out", {**OPTIONS, "NANLOG_FLUSH_SEC": "0"})[0] is Verdict.MISSING

    def test_a_program_that_closes_all_descriptors_is_observed_all_the_same(self, tmp_path: Path) -> None:
        """Files that it opens then get numbers of their own, also for the note that the signal leaves."""
        at_3 = "os.closerange(3, 4096); mine = [open(f'mine_{number}', 'w') for number in range(20)]\n"
        assert train(tmp_path, f"{at_3}{SIGNAL_SOON}time.sleep(60)").code == -15
        assert [path.stat().st_size for path in tmp_path.glob("mine_*")] == [0] * 20
        assert steps_on_disk(tmp_path / "out") == {1: WHOLE, 2: WHOLE}
        assert verdict(tmp_path / "out")[0] is Verdict.INCOMPLETE

    def test_a_directory_that_stays_away_is_told_of_once(self, tmp_path: Path) -> None:
        ran = train(tmp_path, "import shutil; shutil.rmtree('out')", NANLOG_FLUSH_SEC="0").ok()
        assert (ran.out, own_lines(ran.err)) == ("1\n2\n3\n4\n5\n", [])
        assert ran.err.count("could not write: ") == 1
        assert not (tmp_path / "out").exists()

    def test_without_a_stderr_everything_is_written_all_the_same(self, tmp_path: Path) -> None:
        """First its descriptor is closed, and then there is none at all."""
        assert train(tmp_path, "sys.stderr = None", AT_START="os.close(2)").ok().out == "1\n2\n3\n4\n5\n"
        found = summary(tmp_path / "out")
        assert (found["status"], found["records_written"]) == ("complete", 5 * WHOLE)
        assert found["overhead"]["steps_measured"] in (4, 5)
        assert 0 < found["overhead"]["share_of_step"] < 1


class TestFlush:
    """NANLOG_FLUSH_SEC."""

    @pytest.mark.parametrize(("seconds", "fresh"), [(0.0, True), (3600.0, False)])
    def test_the_summary_is_written_anew_when_that_long_has_passed(
        self, tmp_path: Path, seconds: float, fresh: bool
    ) -> None:
        import torch
        from torch import nn

        model = nn.Sequential(nn.Linear(2, 2))
        with armed(tmp_path, ALL, flush_sec=seconds), torch.no_grad():
            for step in range(1, 6):
                model(torch.ones(1, 2))
                found = summary(tmp_path)
                lines = len(records(tmp_path / "layers_rank0.jsonl"))
                assert (found["steps_seen"], found["status"]) == (step, "running")
                assert lines == (step - 1) * (lines // max(1, step - 1))
                assert found["records_written"] == (lines if fresh else 0)
