"""Jobs through submitit: submitting them, and knowing which have ended, those of an earlier call included."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from aorta_collectors.errors import CollectorsError
from aorta_collectors.linux import stat_fields
from aorta_collectors.scaleout.job import CellJob, run_cell
from aorta_collectors.scaleout.ledger import Entry

EXECUTORS = ("slurm", "local")
_MISSING = "submitit is not installed. It runs the jobs: pip install 'aorta-collectors[submit]'"
# submitit ends a job after minutes unless it is told. On one machine there is nobody to share it with.
_LOCAL_TIMEOUT_MIN = 365 * 24 * 60
_END_GRACE_S = 20.0


def parse_parameters(settings: Iterable[str]) -> dict[str, Any]:
    """NAME=VALUE settings as submitit's parameters; a value is JSON where it parses as that, otherwise text.

    Raises CollectorsError.
    """
    found: dict[str, Any] = {}
    for setting in settings:
        name, separator, value = setting.partition("=")
        if not separator or not name:
            raise CollectorsError(f"--param {setting}: NAME=VALUE is wanted, such as slurm_partition=gpu")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found


class Engine:
    """One executor of submitit.

    Attributes:
        grace_s: How long the files of an ended job may take to be seen from here.
        queue_every_s: Seconds between two looks at Slurm's accounting and queue.
    """

    def __init__(self, name: str, parameters: Mapping[str, Any], at_once: int | None, job_name: str) -> None:
        """Check everything that can be checked before a job is submitted.

        Args:
            at_once: How many jobs may run at a time; None leaves it to the executor.

        Raises:
            CollectorsError: submitit is missing, or a parameter is none of the executor's.
        """
        self.name = name
        self.grace_s = 10.0 if name == "slurm" else 0.0
        self.queue_every_s = 20.0
        self._parameters = {"name": job_name, "stderr_to_stdout": True, **parameters}
        # One process runs the sweep of a cell. What that one starts, torchrun or srun, is its own affair, and a step
        # of srun could not start another.
        if self._parameters.get("tasks_per_node", 1) != 1:
            raise CollectorsError("--param tasks_per_node: a job is one sweep; let its command start the processes")
        if name == "slurm":
            if not {"timeout_min", "slurm_time"} & set(parameters):
                raise CollectorsError("--executor slurm needs --param timeout_min=N, the minutes that a cell may take")
            self._parameters = {"slurm_use_srun": False, **self._parameters}
            if at_once is not None:
                self._parameters["slurm_array_parallelism"] = at_once
        else:
            self._parameters = {"timeout_min": _LOCAL_TIMEOUT_MIN, **self._parameters}
        self._slurm_jobs: dict[str, Any] = {}
        self._times_absent: dict[str, int] = {}
        self._queue_asked = float("-inf")
        self._executor(Path(os.sep))  # checks the parameters; nothing is written there

    def _executor(self, folder: Path) -> Any:
        submitit = _submitit()
        try:
            executor = submitit.AutoExecutor(folder, cluster=self.name)
            executor.update_parameters(**self._parameters)
        except (NameError, ValueError, TypeError, AssertionError, RuntimeError) as error:
            raise CollectorsError(f"--executor {self.name}: {error}") from None
        return executor

    def variables(self) -> dict[str, str | None]:
        """Variables that a job must not take from the executor, with their values here.

        submitit hides all GPUs from a local job that asks for none.
        """
        if self.name == "local" and "gpus_per_node" not in self._parameters:
            return {"CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES")}
        return {}

    def submit(self, jobs: Sequence[CellJob], folder: Path) -> list[str]:
        """Submit jobs, on Slurm several as one array. Returns the id of each.

        Args:
            folder: Where submitit keeps its files and the logs.

        Raises:
            CollectorsError: The executor refuses.
        """
        executor = self._executor(folder)
        try:
            with _controller_log(folder) if self.name == "local" else contextlib.nullcontext():
                submitted = executor.map_array(run_cell, jobs)
        except (RuntimeError, OSError, subprocess.SubprocessError) as error:
            raise CollectorsError(f"--executor {self.name}: the jobs cannot be submitted: {error}") from None
        return [str(job.job_id) for job in submitted]

    def ended(self, entries: Mapping[str, Entry]) -> set[str]:
        """Which of these cells' jobs have ended, as far as can be known from here.

        Raises:
            CollectorsError: One was handed to Slurm, and there is none to ask.
        """
        found = set()
        slurm = {}
        for cell, entry in entries.items():
            if entry.executor == "slurm":
                slurm[cell] = entry
            elif not _runs_here(entry):
                found.add(cell)
        return found | self._ended_on_slurm(slurm)

    def _ended_on_slurm(self, entries: Mapping[str, Entry]) -> set[str]:
        if not entries:
            return set()
        jobs = {cell: self._slurm_job(entry) for cell, entry in entries.items()}
        found = {cell for cell, job in jobs.items() if job.done()}
        if len(found) < len(jobs) and shutil.which("squeue") is None:
            open_jobs = ", ".join(f"{cell} ({job.job_id})" for cell, job in jobs.items() if cell not in found)
            raise CollectorsError(
                f"an earlier call handed jobs to Slurm, and squeue is not on PATH to ask for them: {open_jobs}. "
                "Continue on a machine of the cluster, or give another --output"
            )
        if time.monotonic() - self._queue_asked >= self.queue_every_s:
            # submitit asks the accounting ever less often, and where there is none it never learns that a job is gone.
            self._queue_asked = time.monotonic()
            next(iter(jobs.values())).watcher.update()
            queued = _queued()
            absent = {job.job_id for job in jobs.values() if job.state == "UNKNOWN"}
            absent = absent - queued if queued is not None else set()
            self._times_absent = {job: self._times_absent.get(job, 0) + 1 for job in absent}
        # Once could be the moment before the queue shows a new job.
        return found | {cell for cell, entry in entries.items() if self._times_absent.get(entry.job, 0) > 1}

    def _slurm_job(self, entry: Entry) -> Any:
        if entry.job not in self._slurm_jobs:
            self._slurm_jobs[entry.job] = _submitit().SlurmJob(entry.folder, entry.job, tasks=(0,))
        return self._slurm_jobs[entry.job]

    def state(self, entry: Entry) -> str:
        """What is known of a job that ended without a result, such as Slurm's "NODE_FAIL"."""
        if entry.executor == "slurm":
            state = str(self._slurm_job(entry).state)
            return "no longer in Slurm's queue" if state == "UNKNOWN" else f"Slurm says {state}"
        if entry.host != socket.gethostname():
            return f"it was started on {entry.host}, whose processes cannot be seen from here"
        return "its process is gone"

    def end_local(self, entries: Mapping[str, Entry]) -> list[str]:
        """Interrupt those jobs that run on this machine, and wait for them. Returns their cells."""
        running = {cell: entry for cell, entry in entries.items() if entry.executor == "local" and _runs_here(entry)}
        for entry in running.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(entry.job), signal.SIGINT)
        deadline = time.monotonic() + _END_GRACE_S
        while any(_runs_here(entry) for entry in running.values()) and time.monotonic() < deadline:
            time.sleep(0.1)
        return list(running)


def _submitit() -> Any:
    try:
        import submitit
    except ImportError:
        raise CollectorsError(_MISSING) from None
    # It would warn on the terminal each time that it cannot ask the accounting, and there need not be any.
    logging.getLogger("submitit").setLevel(logging.CRITICAL)
    return submitit


@contextlib.contextmanager
def _controller_log(folder: Path) -> Iterator[None]:
    """Give the processes that submitit starts here a file for their errors, in place of the terminal."""
    folder.mkdir(parents=True, exist_ok=True)
    terminal = os.dup(2)
    try:
        with (folder / "controller.log").open("ab") as log:
            os.dup2(log.fileno(), 2)
            yield
    finally:
        os.dup2(terminal, 2)
        os.close(terminal)


def log_of(entry: Entry) -> Path:
    """The file that a job writes what it prints to."""
    return Path(entry.folder) / f"{entry.job}_0_log.out"


def _runs_here(entry: Entry) -> bool:
    """Whether it is a process of this machine, and the one that was started: a number may have been given again."""
    if entry.host != socket.gethostname():
        return False
    try:
        state = stat_fields(int(entry.job))[0]
        command = Path("/proc", entry.job, "cmdline").read_bytes()
    except (OSError, ValueError):
        return False
    # One that has ended and not been waited for has no command line any more, and one that just begins has none yet.
    return state not in "ZX" and (not command or entry.folder.encode() in command)


def _queued() -> set[str] | None:
    """Ids of this user's jobs in Slurm's queue; None where that cannot be known."""
    try:
        listed = subprocess.run(
            ["squeue", "--me", "--array", "--noheader", "--format=%i"],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return set(listed.stdout.split())
