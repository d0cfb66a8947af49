"""Commands as people write them, the programs at their ends, and what must hold for each of them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support import BIN, PYTHON

#: Trains for three steps and says with which arguments.
TRAIN = """\
#!/usr/bin/env python
import sys
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
for step in range(1, 4):
    loss = model(torch.randn(8, 4)).square().mean()
    loss.backward()
    sys.stdout.write(f"{step} {loss.item()} {sys.argv[1:]}\\n")
    sys.stdout.flush()
"""
#: Launchers of one's own. What they start is found beside them.
STARTS = "import subprocess, sys\nsubprocess.run([sys.executable, 'train.py', *sys.argv[1:]], check=True)\n"
POOLS = """\
import multiprocessing, runpy, sys
from concurrent.futures import ProcessPoolExecutor
def work(arguments):
    sys.argv[1:] = arguments
    runpy.run_path("train.py", run_name="__main__")
if __name__ == "__main__":
    with ProcessPoolExecutor(1, multiprocessing.get_context("forkserver")) as pool:
        pool.submit(work, sys.argv[1:]).result()
"""
SITELESS = "import site, sys\nsite.main()\nsys.argv[1:] = ['a', 'b']\nexec(open('train.py').read())\n"

FILES = {
    "train.py": TRAIN,
    "work/train.py": TRAIN,
    "starts.py": STARTS,
    "pools.py": POOLS,
    "siteless.py": SITELESS,
    "run.sh": 'cd "$(dirname "$0")"\nexec python train.py "$@"\n',
    "launch.sh": "#!/bin/bash\nset -euo pipefail\nARGS=(a b)\npython -u train.py ${ARGS[@]} | cat\n",
    "Makefile": "fit:\n\t@python train.py a b\n",
}


@dataclass(frozen=True)
class Case:
    """A command, and what a trial of it comes to.

    Attributes:
        text: As typed, with PYTHON for the interpreter that has this package.
        route: How collectors get in; "" where either way will do.
        processes: Number of processes that train, of which each prints its lines and leaves a summary.
        tries: What must succeed on a machine for the command to be tried there; of a single word, what must be found.
    """

    text: str
    route: str = "front-end"
    processes: int = 1
    tries: str = ""

    @property
    def words(self) -> list[str]:
        return [re.sub(r"\bPYTHON\b", PYTHON, word) for word in _split(self.text)]

    def skip_where_it_cannot_run(self) -> None:
        if not self.tries:
            return
        words = self.tries.split()
        found = shutil.which(words[0], path=search_path())
        if found is None:
            pytest.skip(f"{words[0]} is not installed")
        if len(words) == 1:
            return
        tried = subprocess.run([found, *words[1:]], capture_output=True, text=True, timeout=60, check=False)
        if tried.returncode != 0:
            pytest.skip(f"{self.tries} fails here: {tried.stderr.strip()[-200:]}")


def _split(text: str) -> list[str]:
    """By spaces, but for what stands in backquotes."""
    parts = text.split("`")
    words = []
    for index, part in enumerate(parts):
        words += [part] if index % 2 else part.split()
    return words


def search_path() -> str:
    return f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}"


def own_lines(out: str) -> list[str]:
    """The program's own, sorted. Below a launcher that makes stderr one with stdout, a terminal's, ours come there."""
    return sorted(line for line in out.splitlines() if " nanlog: " not in line)


def lay_out(directory: Path) -> Path:
    """Put all programs into `directory`."""
    for name, source in FILES.items():
        path = directory / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(source))
        if source.startswith("#!"):
            path.chmod(0o755)
    return directory


TORCHRUN = "torchrun --standalone --nproc-per-node 2"
OF_THE_SYSTEM = "ionice -c 3 chrt -b 0 setsid -w env A=1"
MPIRUN = "mpirun --allow-run-as-root --oversubscribe"
UV = "uv run --offline --no-project --python PYTHON"
ACCELERATE = "accelerate launch --cpu --num_processes 1 --num_machines 1 --mixed_precision no --dynamo_backend no"

#: Each of these is swept for real.
SWEPT = [
    Case(f"timeout -k 5 100 nice -n 5 taskset -c 0 {TORCHRUN} train.py a b", processes=2, tries="taskset -c 0 true"),
    Case("make -s fit", route="environment", tries="make --version"),
]

#: These are started as a trial starts them.
STARTED = [
    Case(f"nohup stdbuf -oL {OF_THE_SYSTEM} python -u -O -W ignore train.py a b", tries=f"{OF_THE_SYSTEM} true"),
    Case("python3 -m work.train a b"),
    Case("python -c `import sys; exec(open('train.py').read())` a b"),
    Case("python -I train.py a b"),
    Case("python -S siteless.py", route=""),
    Case("./train.py a b"),
    Case("env -i OMP_NUM_THREADS=1 PYTHON -E -- train.py a b"),
    Case("time -v -o time.txt unbuffer python train.py a b", tries="time -o /dev/null unbuffer true"),
    Case("xvfb-run -a numactl --physcpubind=0 python train.py a b", tries="xvfb-run -a numactl --physcpubind=0 true"),
    Case("python -m torch.distributed.run --standalone --no-python --nproc-per-node=1 python train.py a b"),
    Case(f"{ACCELERATE} train.py a b", tries="accelerate"),
    Case(f"{MPIRUN} -x PYTHONPATH=. -n 2 bash run.sh a b", route="environment", processes=2, tries=f"{MPIRUN} true"),
    Case("mpiexec.hydra -n 2 python train.py a b", processes=2, tries="mpiexec.hydra -n 2 true"),
    Case(f"{UV} python train.py a b", route="environment", tries="uv --version"),
    Case("bash -c `python - a b < train.py`", route="environment"),
    Case("bash launch.sh", route="environment"),
    Case("python starts.py a b"),
    Case("python pools.py a b"),
]

#: Nothing can be armed in these; what the receipt says of them.
UNARMED = {
    "bash -c `python -I train.py a b`": "-I",
    "bash -c `env -i PYTHON train.py a b`": "emptied environment",
}
