"""Runs scripts many times over, each in a fork of a process that has torch and torchrec imported: `prefork.py JOBS`.

Importing the two takes ten times as long as the scripts themselves. What a fork runs is what `python -m` would:
the same module under the name __main__, in a process of its own that ends as any other.
"""

import atexit
import gc
import importlib
import json
import os
import runpy
import sys
from pathlib import Path
from typing import Any

_IMPORTED = (
    "torch",
    "torchrec.distributed.model_parallel",
    "torchrec.distributed.train_pipeline",
    "torchrec.models.dlrm",
)
_AT_ONCE = 2


def main(jobs: list[dict[str, Any]]) -> None:
    # Registered first, it runs last, in the forks too: after all that other exit handlers do, and in place of taking
    # apart what was imported, which would copy all of it, and take longer than most scripts.
    atexit.register(_leave)
    for name in _IMPORTED:
        importlib.import_module(name)
    gc.freeze()
    running: dict[int, Path] = {}
    for job in jobs:
        if len(running) == _AT_ONCE:
            _await_one(running)
        directory = Path(job["directory"])
        directory.mkdir()
        pid = os.fork()
        if pid == 0:
            _run(job, directory)
            return
        running[pid] = directory
    while running:
        _await_one(running)


def _leave() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(int(hasattr(sys, "last_value")))


def _await_one(running: dict[int, Path]) -> None:
    pid, status = os.wait()
    (running.pop(pid) / "code").write_text(str(os.waitstatus_to_exitcode(status)))


def _run(job: dict[str, Any], directory: Path) -> None:
    for name, descriptor in (("out", 1), ("err", 2)):
        os.dup2(os.open(directory / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), descriptor)
    os.environ.update(job["variables"], NANLOG_DIR=str(directory))
    sys.path[0] = os.getcwd()
    if job["module"] is None:
        sys.argv = job["words"]
        runpy.run_path(job["words"][0], run_name="__main__")
    else:
        sys.argv = ["", *job["words"]]
        runpy.run_module(job["module"], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
