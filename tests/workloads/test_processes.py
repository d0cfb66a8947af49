"""A command's processes: known wherever they go, and gone when it is over."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from aorta_collectors.workloads.processes import Command

#: Starts a child that leaves the session, one that has an empty environment, and one that ignores SIGTERM.
FAMILY = """
import os, signal, subprocess, sys, time
sleep = "import time; time.sleep(300)"
def note(process):
    print(process.pid, flush=True)
note(subprocess.Popen([sys.executable, "-c", sleep], start_new_session=True))
note(subprocess.Popen([sys.executable, "-c", sleep], env={}))
stubborn = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); " + sleep
process = subprocess.Popen([sys.executable, "-c", stubborn], stdout=subprocess.PIPE, start_new_session=True)
process.stdout.readline()
note(process)
print("ready", flush=True)
"""


class Started:
    """A command of the test's, with its output in files."""

    def __init__(self, directory: Path, code: str) -> None:
        self.command = Command()
        self.out = (directory / "out").open("w+b")
        self.err = (directory / "err").open("w+b")
        self.command.start([sys.executable, "-c", code], str(directory), dict(os.environ), self.out, self.err)

    def lines(self, until: str) -> list[str]:
        """What it has printed, once it has printed the line `until`."""
        for _ in range(1200):
            lines = os.pread(self.out.fileno(), 10_000, 0).decode().splitlines()
            if until in lines:
                return lines[: lines.index(until)]
            time.sleep(0.05)
        raise AssertionError(os.pread(self.err.fileno(), 10_000, 0).decode())


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aorta_collectors.workloads.processes._GRACE_S", 0.5)


@pytest.fixture
def bystander(tmp_path: Path) -> Iterator[Command]:
    """Another command, with a mark of its own."""
    other = tmp_path / "other"
    other.mkdir()
    started = Started(other, "import time; print('up', flush=True); time.sleep(300)")
    started.lines("up")
    yield started.command
    assert not started.command.wait(0.0), "it was taken for one of ours"
    started.command.end(now=True)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.usefixtures("impatient", "bystander")
def test_what_a_command_leaves_behind_is_named_and_ended(tmp_path: Path) -> None:
    started = Started(tmp_path, FAMILY)
    assert started.command.wait(120)
    pids = [int(line) for line in started.lines("ready")]
    assert [is_alive(pid) for pid in pids] == [True, True, True]
    left = started.command.end()
    assert sorted(int(entry.partition(" ")[0]) for entry in left) == sorted(pids)
    assert all(entry.endswith(")") for entry in left)
    assert [is_alive(pid) for pid in pids] == [False, False, False]
    assert started.command.exit_code == 0
    assert started.command.end() == []


@pytest.mark.usefixtures("impatient", "bystander")
def test_a_command_that_takes_too_long_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    started = Started(tmp_path, FAMILY + "time.sleep(300)\n")
    pids = [int(line) for line in started.lines("ready")]
    assert not started.command.wait(0.2)
    started.command.end(now=True)
    assert [is_alive(pid) for pid in pids] == [False, False, False]
    assert started.command.exit_code == -signal.SIGTERM


def test_an_interruption_during_the_grace_kills_at_once(tmp_path: Path) -> None:
    """The second Ctrl-C: nobody waits for those that are deaf to SIGTERM."""
    started = Started(tmp_path, FAMILY + "signal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(300)\n")
    pids = [int(line) for line in started.lines("ready")]

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 1.0)
    try:
        with pytest.raises(KeyboardInterrupt):
            started.command.end(now=True)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert [is_alive(pid) for pid in pids] == [False, False, False]
    assert started.command.exit_code == -signal.SIGKILL


def test_helpers_that_end_by_themselves_are_not_left_behind(tmp_path: Path) -> None:
    code = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(0.3)'])"
    started = Started(tmp_path, code)
    assert started.command.wait(120)
    assert started.command.end() == []


def test_a_command_that_was_never_started_leaves_nothing(tmp_path: Path) -> None:
    command = Command()
    assert command.end(now=True) == []
    with (tmp_path / "out").open("wb") as out, pytest.raises(OSError, match="No such file"):
        command.start(["/nowhere/train"], "/", {}, out, out)


@pytest.mark.usefixtures("impatient")
def test_ranks_of_torchrun_that_do_not_listen_are_ended_with_it(tmp_path: Path) -> None:
    """Each of them leads a session of its own; torchrun, killed for waiting too long, leaves them behind."""
    (tmp_path / "deaf.py").write_text(
        "import os, signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "open(f'rank{os.environ[\"RANK\"]}', 'w').write(str(os.getpid()))\n"
        "print('ready', flush=True)\ntime.sleep(300)\n"
    )
    code = (
        "import os, sys\n"
        "words = ['-m', 'torch.distributed.run', '--standalone', '--nproc-per-node=2', 'deaf.py']\n"
        "os.execv(sys.executable, [sys.executable, *words])\n"
    )
    started = Started(tmp_path, code)
    ranks = [tmp_path / "rank0", tmp_path / "rank1"]
    for _ in range(1200):
        if all(rank.exists() and rank.read_text() for rank in ranks):
            break
        time.sleep(0.05)
    pids = [int(rank.read_text()) for rank in ranks]
    assert len({os.getsid(pid) for pid in pids}) == 2
    started.command.end(now=True)
    assert [is_alive(pid) for pid in pids] == [False, False]
