"""What a launcher says in the environment: ranks, world sizes, attempts, and whose they are."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aorta_collectors.observe.process.place import is_helper
from aorta_collectors.observe.process.ranks import (
    TOLD_VARIABLE,
    is_one_of_many,
    launcher_of,
    note_rank,
    restart_of,
    told,
)
from tests.support import PYTHON, run

STEP = {"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "8", "SLURM_STEP_ID": "0"}
TORCHRUN = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}
OPEN_MPI = {"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4", "PMIX_RANK": "2"}


class TestTold:
    @pytest.mark.parametrize(
        ("environ", "expected"),
        [
            ({}, ("", 0, 1)),
            (TORCHRUN, ("RANK", 1, 2)),
            (OPEN_MPI, ("OMPI_COMM_WORLD_RANK", 2, 4)),
            ({"PMI_RANK": "5", "PMI_SIZE": "6"}, ("PMI_RANK", 5, 6)),
            (STEP, ("SLURM_PROCID", 3, 8)),
            ({**STEP, "SLURM_STEP_ID": "4294967279"}, ("SLURM_PROCID", 3, 8)),
            ({"PMIX_RANK": "2"}, ("PMIX_RANK", 2, 3)),
            ({"LOCAL_RANK": "1"}, ("LOCAL_RANK", 1, 1)),
            ({"LOCAL_RANK": "1", "WORLD_SIZE": "2"}, ("LOCAL_RANK", 1, 2)),
            # A program below mpirun or srun that has started torchrun.
            ({**OPEN_MPI, **STEP, **TORCHRUN}, ("RANK", 1, 2)),
            ({**STEP, **OPEN_MPI}, ("OMPI_COMM_WORLD_RANK", 2, 4)),
        ],
    )
    def test_each_launchers_words_are_understood(self, environ: dict[str, str], expected: tuple[str, int, int]) -> None:
        assert told(environ) == expected

    @pytest.mark.parametrize("step", [None, "", "4294967290", "4294967291", "4294967292"])
    def test_a_batch_script_is_no_rank(self, step: str | None) -> None:
        """Nor is an interactive allocation. It has a SLURM_PROCID, and the tasks that its steps would have."""
        environ = {name: value for name, value in STEP.items() if name != "SLURM_STEP_ID"}
        environ |= {"SLURM_NTASKS": "8"} if step is None else {"SLURM_STEP_ID": step}
        assert told(environ) == ("", 0, 1)

    @given(st.dictionaries(st.sampled_from([*STEP, *TORCHRUN, *OPEN_MPI]), st.text(max_size=4)))
    def test_anything_else_is_no_rank_either(self, environ: dict[str, str]) -> None:
        _, rank, world_size = told(environ)
        assert rank >= 0
        assert world_size >= 1


class TestWhoseItIs:
    def test_a_rank_is_its_own_and_not_its_childrens(self) -> None:
        environ = dict(TORCHRUN)
        assert is_one_of_many(environ)
        note_rank(environ)
        assert is_one_of_many(environ)
        child = {**environ, TOLD_VARIABLE: environ[TOLD_VARIABLE].replace(str(os.getpid()), "1")}
        assert not is_one_of_many(child)
        note_rank(child)
        assert not is_one_of_many(child)
        # A launcher below a rank tells its own processes theirs, as does a program that hands ranks out itself.
        assert is_one_of_many({**child, "RANK": "0"})
        assert is_one_of_many({**{name: child[name] for name in child if name != "RANK"}, **OPEN_MPI})

    def test_a_program_that_is_alone_is_told_nothing(self) -> None:
        environ = {"RANK": "0", "WORLD_SIZE": "1"}
        note_rank(environ)
        assert not is_one_of_many(environ)
        assert TOLD_VARIABLE not in environ

    def test_a_rank_without_a_model_is_no_helper(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "summary_rank0.json").write_text('{"run_id": "t"}')
        assert is_helper(tmp_path, "t", None)
        for name, value in TORCHRUN.items():
            monkeypatch.setenv(name, value)
        assert not is_helper(tmp_path, "t", None)
        monkeypatch.setenv(TOLD_VARIABLE, "1:RANK=1/2")
        assert is_helper(tmp_path, "t", None)


class TestAttempt:
    @pytest.mark.parametrize(("value", "count"), [(None, 0), ("0", 0), ("3", 3), ("", 0), ("-1", 0), ("x", 0)])
    def test_restarts_are_counted(self, value: str | None, count: int) -> None:
        assert restart_of({} if value is None else {"TORCHELASTIC_RESTART_COUNT": value}) == count

    def test_a_launcher_is_known_through_shells_and_over_attempts(self) -> None:
        def environ(attempt: int, directory: str = "/tmp/torchelastic_a/none_b") -> dict[str, str]:
            file = f"{directory}/attempt_{attempt}/1/error.json"
            return {"TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_ERROR_FILE": file}

        first, second, other = environ(0), environ(1), environ(1, "/tmp/torchelastic_c/none_d")
        assert launcher_of(first) == launcher_of(second) == f"{socket.gethostname()}:/tmp/torchelastic_a/none_b"
        assert launcher_of(other) != launcher_of(first)
        assert launcher_of({"TORCHELASTIC_RUN_ID": "none"}) == f"{socket.gethostname()}:{os.getppid()}"
        assert launcher_of({"RANK": "0"}) is None


#: Prints the run id of a launch that begins here, once below its launcher and once below a shell of its.
BEGINS = """
import os
from aorta_collectors.observe.process.standalone import LAUNCH_VARIABLE, StandaloneLaunch
StandaloneLaunch.begin(os.environ, "SOME_RUN_ID")
print(os.environ[LAUNCH_VARIABLE].partition(":")[0])
"""


@pytest.mark.parametrize(("variable", "shared"), [("OMPI_COMM_WORLD_RANK", True), ("RANK", False)])
def test_ranks_that_a_launcher_has_started_are_one_launch(tmp_path: Path, variable: str, shared: bool) -> None:
    """A person who sets RANK in two commands has started two."""
    (tmp_path / "begins.py").write_text(BEGINS)
    script = f"{variable}=0 {PYTHON} begins.py; {variable}=1 bash -c '{PYTHON} begins.py; true'; {PYTHON} begins.py"
    first, second, third = run(["bash", "-c", script], tmp_path).ok().out.split()
    assert (first == second, third in (first, second)) == (shared, False)


def test_nothing_of_it_needs_torch(tmp_path: Path) -> None:
    code = "import sys, aorta_collectors.observe.process.ranks; print('torch' in sys.modules)"
    assert run([PYTHON, "-c", code], tmp_path).ok().out == "False\n"
