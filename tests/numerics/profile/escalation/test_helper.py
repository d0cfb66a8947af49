"""The helper in the situations that programs bring it into: it is not noticed, harms nothing, and leaves nothing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from aorta_collectors.numerics.profile.escalation.helper_process import Helper
from aorta_collectors.numerics.profile.escalation.sources import Unavailable

_COMMAND = [sys.executable, "-m", "tests.numerics.profile.escalation.looking"]
_needs_strace = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")


def _looked(*arguments: str, before: tuple[str, ...] = (), status: int = 0) -> dict[str, Any]:
    done = subprocess.run([*before, *_COMMAND, *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == status, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _is_there(pid: int) -> bool:
    """Whether a process is alive; one that nobody has waited for is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def _children_of(pid: int) -> list[int]:
    found = []
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = place.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            found.append(int(place.parent.name))
    return found


@pytest.mark.parametrize("source", ["perf", "strace", "proc"])
def test_a_program_that_sleeps_spends_its_time_in_other_calls(source: str) -> None:
    found = _looked("plain", source)
    if "breakdown" not in found:
        pytest.skip(found["unavailable"][0])
    breakdown = found["breakdown"]
    assert breakdown["source"] == source
    assert breakdown["dominant"] == "other"
    assert breakdown["overhead_percent"] > 80
    assert breakdown["wall_us"] >= 250_000


@pytest.mark.parametrize("source", [pytest.param("strace", marks=_needs_strace), "proc"])
def test_children_and_their_signals_are_the_programs(source: str) -> None:
    found = _looked("children", source)
    assert found["own_was_reaped"]
    assert not found["has_children"]


@pytest.mark.parametrize("source", ["perf", "strace", "proc"])
def test_a_fork_in_between_goes_on_by_itself(source: str) -> None:
    found = _looked("forks", source)
    if "breakdown" not in found:
        pytest.skip(found["unavailable"][0])
    assert found["status"] == [7]


@pytest.mark.parametrize("source", [pytest.param("strace", marks=_needs_strace), "proc"])
def test_nothing_runs_on_when_the_program_ends_in_the_middle(source: str) -> None:
    found = _looked("leaves", source, status=3)
    began = [found["helper"], *_children_of(found["helper"])]
    deadline = time.monotonic() + 10
    while any(map(_is_there, began)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(map(_is_there, began))


@_needs_strace
def test_where_one_source_is_of_no_use_the_next_one_looks() -> None:
    """The program is traced already, by somebody's strace."""
    found = _looked("plain", "strace", "proc", before=("strace", "-o", os.devnull, "-e", "trace=none"))
    if "breakdown" not in found:
        pytest.skip(found["unavailable"][0])
    assert "already traces" in found["unavailable"][0]
    assert found["breakdown"]["source"] == "proc"


def test_where_tracing_is_forbidden_proc_is_looked_at() -> None:
    if os.uname().machine not in ("x86_64", "aarch64"):
        pytest.skip("the test knows the numbers of system calls of two machines")
    found = _looked("forbidden", "perf", "strace", "proc")
    assert found["breakdown"]["source"] == "proc"
    assert [remark.split()[0] for remark in found["unavailable"]] == ["perf", "strace", "Sampling"]


def test_a_source_that_told_nothing_is_not_asked_again(tmp_path: Path) -> None:
    """A perf that begins, and has nothing to say in the end, as where it may open events but not read them."""
    perf = tmp_path / "perf"
    perf.write_text(
        f"#!{sys.executable} -IS\n"
        "import os, sys\n"
        "if sys.argv[1] == 'record':\n"
        "    orders, answers = sys.argv[sys.argv.index('--control') + 1].removeprefix('fd:').split(',')\n"
        "    while os.read(int(orders), 64):\n"
        "        os.write(int(answers), b'ack\\n')\n"
    )
    perf.chmod(0o755)
    found = _looked("twice", "perf", "proc", before=("env", f"PATH={tmp_path}:{os.environ['PATH']}"))
    assert "told nothing" in found["first"]["unavailable"][0]
    assert found["breakdown"]["source"] == "proc"
    assert "told nothing" in found["unavailable"][0]


def test_a_helper_that_is_gone_is_started_again() -> None:
    assert _looked("idles", "proc")["breakdown"]["source"] == "proc"


@pytest.mark.parametrize("source", [pytest.param("strace", marks=_needs_strace), "proc"])
def test_a_helper_that_dies_in_a_look_is_no_error(source: str) -> None:
    """The program goes on, traced by nobody."""
    found = _looked("killed", source, "proc")
    assert "breakdown" not in found
    assert found["unavailable"]
    assert "breakdown" in found["again"]
    assert not any("already traces" in reason for reason in found["again"]["unavailable"])


def test_two_ranks_of_one_machine_look_at_the_same_time() -> None:
    ranks = [subprocess.Popen([*_COMMAND, "plain", "strace", "proc"], stdout=subprocess.PIPE) for _ in range(2)]
    for rank in ranks:
        told, _ = rank.communicate(timeout=60)
        assert rank.returncode == 0
        assert json.loads(told)["breakdown"]["dominant"] == "other"


def test_without_a_python_to_start_nothing_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "")
    with pytest.raises(Unavailable, match="no Python"):
        Helper().begin(1)
