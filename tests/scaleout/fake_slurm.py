"""A Slurm of one machine for the tests: sbatch really runs the script, in the background, and the others tell of it.

Its state lies in $FAKE_SLURM: a file a task with its state, `events` with what was started and ended, `hold` while the
queue stands still, `fail` and `requeue` with the number of the task whose node is to fail, and a path that
must exist by then. After `requeue` the task waits to be started again, as Slurm has it do unless it is told otherwise.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

COMMANDS = ("sbatch", "srun", "squeue", "sacct", "scancel")
_POLL_S = 0.05


def install(directory: Path) -> dict[str, str]:
    """Write the commands below `directory`. Returns the environment to find them in."""
    commands, state = directory / "slurm-bin", directory / "slurm-state"
    commands.mkdir()
    state.mkdir()
    for name in COMMANDS:
        path = commands / name
        path.write_text(f"#!{sys.executable} -I\nimport sys\nsys.path.insert(0, {str(Path(__file__).parent)!r})\n")
        with path.open("a") as stream:
            stream.write(f"import fake_slurm\nfake_slurm.{name}(sys.argv[1:])\n")
        path.chmod(0o755)
    path = os.pathsep.join((str(commands), str(Path(sys.executable).parent), os.environ["PATH"]))
    return {"PATH": path, "FAKE_SLURM": str(state)}


def _state() -> Path:
    return Path(os.environ["FAKE_SLURM"])


def _tasks() -> dict[str, str]:
    return {path.stem: path.read_text() for path in sorted(_state().glob("*.task"))}


def _set(task: str, state: str) -> None:
    temporary = _state() / f"{task}.new"
    temporary.write_text(state)
    temporary.rename(_state() / f"{task}.task")
    with (_state() / "events").open("a") as events:
        events.write(f"{task} {state}\n")


def sbatch(words: list[str]) -> None:
    script = Path(words[0])
    options = dict(re.findall(r"^#SBATCH --([a-z-]+)=(.*)$", script.read_text(), flags=re.M))
    job = str(1000 + len(list(_state().glob("*.sh"))))
    copy = _state() / f"{job}.sh"
    copy.write_text(script.read_text())
    tasks, at_once = [job], 1
    if "array" in options:
        first, last, at_once = (int(number) for number in re.split(r"[-%]", options["array"]))
        tasks = [f"{job}_{index}" for index in range(first, last + 1)]
    for task in tasks:
        _set(task, "PENDING")
    subprocess.Popen(
        [sys.executable, __file__, str(copy), options["output"], str(at_once), *tasks],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    print(f"Submitted batch job {job}")


def srun(words: list[str]) -> None:
    sys.exit("a job of ours must not need srun")


def squeue(words: list[str]) -> None:
    print("\n".join(task for task, state in _tasks().items() if state in ("PENDING", "RUNNING")))


def sacct(words: list[str]) -> None:
    print("JobID|State|NodeList")
    for task, state in _tasks().items():
        print(f"{task}|{state}|node1")


def scancel(words: list[str]) -> None:
    for task in words:
        _set(task, "CANCELLED")


def _control(script: Path, output: str, at_once: int, tasks: list[str]) -> None:
    """Run the tasks of one job, `at_once` at a time, as the controller of the cluster would."""
    while (_state() / "hold").exists():
        time.sleep(_POLL_S)
    waiting = list(tasks)
    running: dict[str, subprocess.Popen[bytes]] = {}
    while waiting or running:
        while waiting and len(running) < at_once:
            task = waiting.pop(0)
            running[task] = _start(script, output, task)
            _set(task, "RUNNING")
        for task, process in list(running.items()):
            code = process.poll()
            if code is not None:
                _set(task, "COMPLETED" if code == 0 else "FAILED")
                del running[task]
                continue
            for file, state in (("fail", "NODE_FAIL"), ("requeue", "PENDING")):
                if _due(file, task):
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
                    _set(task, state)
                    del running[task]
                    waiting += [task] if state == "PENDING" else []
        time.sleep(_POLL_S)


def _due(file: str, task: str) -> bool:
    path = _state() / file
    index, _, wanted = path.read_text().partition(" ") if path.exists() else ("", "", "")
    if not index or index != task.partition("_")[2] or not Path(wanted).exists():
        return False
    path.unlink()
    return True


def _start(script: Path, output: str, task: str) -> subprocess.Popen[bytes]:
    job, _, index = task.partition("_")
    environment = {**os.environ, "SLURM_JOB_ID": job, "SLURM_PROCID": "0", "SLURM_LOCALID": "0"}
    if index:
        environment.update(SLURM_ARRAY_JOB_ID=job, SLURM_ARRAY_TASK_ID=index)
    path = output.replace("%A", job).replace("%a", index).replace("%j", task)
    with open(path, "ab") as log:
        return subprocess.Popen(["bash", str(script)], stdout=log, stderr=log, env=environment, start_new_session=True)


if __name__ == "__main__":
    _control(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4:])
