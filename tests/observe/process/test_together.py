"""Two collectors in one process: each is told of its end, whatever ends it, and neither takes the other's word away."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from aorta_collectors.observe.process.signals import note_name, told
from tests.support import PYTHON, run

#: Notes by two of the end of a process that ends as its argument says. No torch is needed, nor taken.
TWO_NOTES = """
import os, shutil, signal, sys
from pathlib import Path
from aorta_collectors.observe.process.signals import SignalNotes

for name in ("one", "two"):
    Path(name).mkdir()
one, two = SignalNotes(Path("one"), "rank0"), SignalNotes(Path("two"), "rank0")


def work():
    if sys.argv[1] == "first withdraws":
        one.withdraw()
    if sys.argv[1] == "both withdraw":
        one.withdraw()
        two.withdraw()
    if sys.argv[1] == "directory removed":
        shutil.rmtree("one")
    if sys.argv[1] == "fork":
        if os.fork() == 0:
            os.kill(os.getpid(), signal.SIGTERM)
        assert os.WTERMSIG(os.wait()[1]) == signal.SIGTERM
        assert not Path("one", "sigterm_rank0.txt").read_text()
    os.kill(os.getpid(), signal.SIGTERM)


work()
"""


class TestSignals:
    @pytest.mark.parametrize(
        ("how", "left"), [("at once", "both"), ("first withdraws", "two"), ("both withdraw", ""), ("fork", "both")]
    )
    def test_each_note_tells_of_the_signal_until_it_is_withdrawn(self, tmp_path: Path, how: str, left: str) -> None:
        (tmp_path / "work.py").write_text(TWO_NOTES)
        assert run([PYTHON, "work.py", how], tmp_path).code == -signal.SIGTERM
        for name in ("one", "two"):
            note = tmp_path / name / note_name("SIGTERM", "rank0")
            assert note.exists() == (left in ("both", name))
            if note.exists():
                assert told("SIGTERM", note.read_text()).startswith("signal SIGTERM in work.py:")

    def test_a_note_outlives_the_other_ones_directory(self, tmp_path: Path) -> None:
        (tmp_path / "work.py").write_text(TWO_NOTES)
        assert run([PYTHON, "work.py", "directory removed"], tmp_path).code == -signal.SIGTERM
        assert "work.py" in (tmp_path / "two" / "sigterm_rank0.txt").read_text()


#: Two that are told of hard exits; the second one may want another status. The process leaves as its argument says.
TWO_LEAVING = """
import os, sys
from aorta_collectors.observe.process.hard_exit import before_hard_exit


class Told:
    def __init__(self, name, status=None):
        self.name, self.status = name, status

    def exit_status(self):
        return self.status

    def leave(self, ended_by, is_main):
        print(self.name, ended_by, is_main, flush=True)

    give_way = leave

    def stay(self, failure):
        print(self.name, failure.partition(":")[0], flush=True)


order = [Told("plain"), Told("stopped", 86)]
for told in order if sys.argv[1] == "plain first" else order[::-1]:
    before_hard_exit(told)
if sys.argv[2] == "exec":
    os.execv(sys.executable, [sys.executable, "-c", "raise SystemExit(7)"])
os._exit(3)
"""


class TestHardExits:
    @pytest.mark.parametrize("order", ["plain first", "stopped first"])
    def test_both_are_told_and_the_status_is_that_of_who_insists(self, tmp_path: Path, order: str) -> None:
        ran = run([PYTHON, "-c", TWO_LEAVING, order, "exit"], tmp_path)
        assert ran.code == 86
        told = [line.split(" ", 1) for line in ran.out.splitlines()]
        assert sorted(name for name, _ in told) == ["plain", "stopped"]
        # Whoever is asked last is told of the status that the process is going to end with.
        assert {ended_by for _, ended_by in told} <= {"os._exit 3 True", "os._exit 86 True"}

    def test_both_are_told_of_another_program_whose_status_counts(self, tmp_path: Path) -> None:
        ran = run([PYTHON, "-c", TWO_LEAVING, "plain first", "exec"], tmp_path)
        assert ran.code == 7
        assert sorted(line.split()[0] for line in ran.out.splitlines()) == ["plain", "stopped"]


#: A pool whose worker is terminated in the middle of a task, with two of us in it.
POOLED = """
import multiprocessing, os, signal
from aorta_collectors.observe.process.pool import close_when_terminated


class Told:
    def __init__(self, name):
        self.name = name

    def close(self, ended_by):
        raise AssertionError

    def leave(self, ended_by, is_main):
        print(self.name, ended_by, flush=True)


def task(_):
    for name in ("one", "two"):
        told = Told(name)
        close_when_terminated(told.close, Told.close.__code__, told.leave)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool(1) as pool:
        worker = pool._pool[0]
        pool.map_async(task, [0])
        worker.join()
        assert worker.exitcode == -signal.SIGTERM
"""


def test_each_is_told_when_a_pools_worker_is_terminated(tmp_path: Path) -> None:
    (tmp_path / "pooled.py").write_text(POOLED)
    ran = run([PYTHON, "pooled.py"], tmp_path).ok()
    assert ran.out.splitlines() == ["one signal SIGTERM", "two signal SIGTERM"]


#: Ends in the way of its first argument, with whatever status, having asked for the second argument.
ENDING = """
import atexit, os, sys
atexit.register(lambda: print("registered before"))
from aorta_collectors.observe.process.last_status import LastStatus

wanted = None if sys.argv[2] == "none" else int(sys.argv[2])
LastStatus.decide(lambda: wanted)
atexit.register(lambda: print("registered after", file=sys.stderr))
sys.stdout.write("not flushed yet ")
how = sys.argv[1]
if how == "cleared":
    atexit._clear()
if how == "fork":
    sys.stdout.flush()
    if os.fork() == 0:
        sys.exit(4)
    assert os.waitstatus_to_exitcode(os.wait()[1]) == 4
if how == "raise":
    raise ValueError("of the program")
if how == "exit":
    sys.exit(3)
"""


class TestLastStatus:
    @pytest.mark.parametrize("how", ["end", "exit", "raise", "fork"])
    def test_it_is_that_of_the_process_after_all_handlers(self, tmp_path: Path, how: str) -> None:
        ran = run([PYTHON, "-c", ENDING, how, "86"], tmp_path)
        assert ran.code == 86
        assert ran.out.startswith("not flushed yet ")
        assert ran.out.endswith("registered before\n")
        assert "registered after\n" in ran.err
        assert ("ValueError: of the program" in ran.err) == (how == "raise")

    @pytest.mark.parametrize(("how", "code"), [("end", 0), ("exit", 3), ("raise", 1)])
    def test_without_one_the_programs_own_stays(self, tmp_path: Path, how: str, code: int) -> None:
        assert run([PYTHON, "-c", ENDING, how, "none"], tmp_path).code == code

    def test_a_program_that_clears_the_handlers_keeps_its_status(self, tmp_path: Path) -> None:
        assert run([PYTHON, "-c", ENDING, "cleared", "86"], tmp_path).code == 0
