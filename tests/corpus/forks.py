"""Runs programs in forks of one process that has imported torch, which spares each of them the import.

torch._dynamo comes with it: an optimizer imports it. Further modules to import are named on the command line.

Reads a line of JSON for each program from stdin: {"argv": [...], "env": {...}, "cwd": ..., "output": ...}. The
words are those that python is given, from "script.py" or "-m", "module" on. Answers with a line that is the exit code.
What the program prints on stdout goes to the file `output`, stderr to `output`.err.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import runpy
import sys
import traceback
from typing import Any

import torch._dynamo  # noqa: F401


def run(task: dict[str, Any]) -> int:
    """In the fork: be the program. Returns the exit code."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(os.open(task["output"], flags), 1)
    os.dup2(os.open(task["output"] + ".err", flags), 2)
    os.environ.update(task["env"])
    os.chdir(task["cwd"])
    is_module = task["argv"][0] == "-m"
    sys.argv = task["argv"][is_module:]
    sys.path[0] = task["cwd"] if is_module else os.path.dirname(os.path.abspath(sys.argv[0]))
    try:
        if is_module:
            runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else end.code is not None
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def main() -> None:
    for name in sys.argv[1:]:
        importlib.import_module(name)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            code = run(json.loads(line))
            atexit._run_exitfuncs()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
