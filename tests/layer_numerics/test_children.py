"""Standalone, the processes that a program starts are observed too, and the program cannot tell."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support import PYTHON, Ran, run

#: Training for the processes of all programs below. A rank belongs to a process group that needs no network.
WORK = """
import os, sys
import torch
import torch.distributed as dist
from torch import nn
from torch.testing._internal.distributed.fake_pg import FakeStore


def train(steps, bad_step=0, fails=False):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4))
    for step in range(1, steps + 1):
        value = float("nan") if step == bad_step else 1.0
        loss = model(torch.full((1, 4), value)).sum()
        loss.backward()
    os.write(1, f"{steps} {loss.item()}\\n".encode())  # in one piece, beside what other ranks print
    if fails:
        raise RuntimeError("boom")
    return steps


def rank(index, fails=False):
    dist.init_process_group("fake", store=FakeStore(), rank=index, world_size=2)
    train(3 + index, bad_step=2 * index, fails=fails)
"""

RANKS = """
import sys, torch.multiprocessing
from work import rank
if __name__ == "__main__":
    torch.multiprocessing.start_processes(rank, nprocs=2, start_method=sys.argv[1])
    print("done")
"""

#: Only rank 1's target raises; the parent ends as if nothing were.
FAILING = """
import multiprocessing, sys
if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    if sys.argv[1] == "forkserver":
        context.set_forkserver_preload(["torch", "work"])
    from work import rank
    for index in range(2):
        process = context.Process(target=rank, args=(index, index == 1))
        process.start()
        process.join()
        print(process.exitcode)
"""

SPAWN_FAILING = """
import torch.multiprocessing
from work import rank
if __name__ == "__main__":
    torch.multiprocessing.spawn(rank, args=(True,), nprocs=1)
"""

EXECUTOR = """
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from work import train
if __name__ == "__main__":
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        print(list(pool.map(train, [2, 3])))
"""

#: Nobody waits for the child but multiprocessing, at exit.
UNJOINED = """
import multiprocessing, sys
from work import train
if __name__ == "__main__":
    if len(sys.argv) > 1:
        train(2)
    multiprocessing.get_context("spawn").Process(target=train, args=(4,)).start()
"""

LOADER = """
import torch
from torch.utils.data import DataLoader, TensorDataset
from work import train
if __name__ == "__main__":
    data = TensorDataset(torch.ones(4, 2))
    print(len(list(DataLoader(data, num_workers=2, multiprocessing_context="spawn"))))
    train(2)
"""

NO_MODEL = """
import multiprocessing, torch
if __name__ == "__main__":
    process = multiprocessing.get_context("spawn").Process(target=print, args=("child",))
    process.start()
    process.join()
"""

#: Never imports torch. Its children are started elsewhere, with and without the environment; each says what it sees.
STARTER = """
import os, subprocess, sys
code = "import os, sys; print(sys.argv, sys.path, sorted(sys.flags)); sys.path.append(sys.argv[1]); "
code += "from work import train; train(int(sys.argv[2]))"
home = os.getcwd()
os.mkdir("elsewhere")
os.chdir("elsewhere")
for steps, flags in enumerate([(), ("-I",)], start=1):
    subprocess.run([sys.executable, *flags, "-c", code, home, str(steps)], check=True)
os.rmdir(os.path.join(home, "elsewhere"))
"""

#: One rank of a launcher that sets RANK.
ONE_RANK = "import os\nfrom work import train\ntrain(2 + int(os.environ['RANK']))\n"

TORCHRUN = ["--nproc-per-node", "2"]

NESTED = """
import subprocess, sys
for _ in range(2):
    subprocess.run([sys.executable, "-m", "aorta_collectors.layer_numerics", "-c", "import work; work.train(2)"])
"""

PROGRAMS = {
    "ranks.py": RANKS,
    "failing.py": FAILING,
    "spawn_failing.py": SPAWN_FAILING,
    "executor.py": EXECUTOR,
    "unjoined.py": UNJOINED,
    "loader.py": LOADER,
    "no_model.py": NO_MODEL,
    "starter.py": STARTER,
    "one_rank.py": ONE_RANK,
    "nested.py": NESTED,
    "work.py": WORK,
}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return _with_programs(tmp_path)


def _with_programs(directory: Path) -> Path:
    for name, source in PROGRAMS.items():
        (directory / name).write_text(source)
    return directory


def launch(words: list[str], cwd: Path, **env: str) -> Ran:
    return run([PYTHON, "-m", "aorta_collectors.layer_numerics", *words], cwd, {"NANLOG_DIR": "out", **env})


def own_lines(err: str) -> str:
    """The program's own part of stderr."""
    return "".join(line for line in err.splitlines(keepends=True) if " nanlog: " not in line)


def same(ran: Ran, bare: Ran) -> None:
    assert sorted(ran.out.splitlines()) == sorted(bare.out.splitlines())
    assert (ran.code, own_lines(ran.err)) == (bare.code, bare.err)


def summaries(directory: Path) -> dict[str, dict[str, Any]]:
    """By the stem of the files' names, whole; nothing else is in the directory but the records."""
    found = {path.name[8:-5]: json.loads(path.read_text()) for path in directory.glob("summary_*.json")}
    expected = [name for stem in found for name in (f"layers_{stem}.jsonl", f"summary_{stem}.json")]
    assert sorted(os.listdir(directory)) == sorted(expected)
    for stem, content in found.items():
        assert Path(content["jsonl"]).name == f"layers_{stem}.jsonl"
        assert content["status"] == "complete"
    return found


def one_launch(found: dict[str, dict[str, Any]]) -> None:
    (run_id,) = {content["run_id"] for content in found.values()}
    assert run_id


def seen(found: dict[str, dict[str, Any]]) -> list[tuple[int, int, str]]:
    return sorted((content["rank"], content["steps_seen"], content["ended_by"]) for content in found.values())


@pytest.fixture(scope="module")
def spawned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Ran, Ran]:
    """Two spawned ranks: the directory of the launch, what it printed, and what the program prints without us."""
    directory = _with_programs(tmp_path_factory.mktemp("spawned"))
    words = ["ranks.py", "spawn"]
    return directory, launch(words, directory).ok(), run([PYTHON, *words], directory)


class TestMultiprocessing:
    def test_spawned_ranks_leave_a_summary_each_and_their_parent_none(self, spawned: tuple[Path, Ran, Ran]) -> None:
        directory, ran, bare = spawned
        same(ran, bare)
        found = summaries(directory / "out")
        one_launch(found)
        assert set(found) == {"rank0", "rank1"}
        assert seen(found) == [(0, 3, "exit"), (1, 4, "exit")]
        assert {content["world_size"] for content in found.values()} == {2}
        assert (found["rank0"]["first_bad"], found["rank1"]["first_bad"]["step"]) == (None, 2)
        assert "no PyTorch model" not in ran.err

    def test_so_do_those_of_a_fork_server(self, spawned: tuple[Path, Ran, Ran], home: Path) -> None:
        same(launch(["ranks.py", "forkserver"], home), spawned[2])
        found = summaries(home / "out")
        one_launch(found)
        assert seen(found) == [(0, 3, "exit"), (1, 4, "exit")]

    @pytest.mark.parametrize("method", ["spawn", "forkserver"])
    def test_a_target_that_raises_ends_its_process_as_before_and_is_told(self, home: Path, method: str) -> None:
        """The fork server of this program has torch preloaded."""
        words = ["failing.py", method]
        ran, bare = launch(words, home), run([PYTHON, *words], home)
        same(ran, bare)
        assert "RuntimeError: boom" in bare.err
        assert seen(summaries(home / "out")) == [(0, 3, "exit"), (1, 4, "RuntimeError: boom")]

    def test_a_rank_that_raises_below_torchs_spawn_is_told_too(self, home: Path) -> None:
        ran, bare = launch(["spawn_failing.py"], home), run([PYTHON, "spawn_failing.py"], home)
        same(ran, bare)
        assert (bare.code, "ProcessRaisedException" in bare.err) == (1, True)
        assert seen(summaries(home / "out")) == [(0, 3, "RuntimeError: boom")]

    def test_workers_of_an_executor_are_observed(self, home: Path) -> None:
        assert launch(["executor.py"], home).ok().out.endswith("\n[2, 3]\n")
        assert seen(summaries(home / "out")) == [(0, 5, "exit")]

    def test_a_parent_that_does_not_wait_leaves_the_word_to_its_child(self, home: Path) -> None:
        ran = launch(["unjoined.py"], home).ok()
        assert "no PyTorch model" not in ran.err
        assert seen(summaries(home / "out")) == [(0, 4, "exit")]

    def test_a_parent_and_a_child_of_one_rank_share_no_file(self, home: Path) -> None:
        launch(["unjoined.py", "train"], home).ok()
        found = summaries(home / "out")
        one_launch(found)
        assert seen(found) == [(0, 2, "exit"), (0, 4, "exit")]
        (other,) = set(found) - {"rank0"}
        assert (found["rank0"]["steps_seen"], other) == (2, f"rank0_p{found[other]['pid']}")

    def test_a_data_loaders_workers_say_and_write_nothing(self, home: Path) -> None:
        ran = launch(["loader.py"], home).ok()
        assert len(set(re.findall(r"PID=(\d+)", ran.err))) == 1
        assert seen(summaries(home / "out")) == [(0, 2, "exit")]

    def test_where_nobody_called_a_model_the_program_itself_says_so(self, home: Path) -> None:
        ran = launch(["no_model.py"], home).ok()
        assert ran.err.count("no PyTorch model was called") == 1
        assert seen(summaries(home / "out")) == [(0, 0, "exit")]


class TestSubprocesses:
    def test_a_python_started_elsewhere_writes_where_the_launch_does(self, home: Path) -> None:
        """One with -I looks at no environment, and stays as it is."""
        (home / "spec.json").write_text('{"sample_every": 1}')
        ran = launch(["--config", "spec.json", "starter.py"], home).ok()
        same(ran, run([PYTHON, "starter.py"], home))
        (content,) = summaries(home / "out").values()
        assert (content["steps_seen"], content["spec_applied"]) == (1, True)

    def test_switched_off_nothing_reaches_the_children(self, home: Path) -> None:
        show = "import os, subprocess, sys; print(sorted(name for name in os.environ if name.startswith('AORTA')))"
        left_alone = ["AORTA_COLLECTORS", "AORTA_COLLECTORS_REPORT"]  # of the user, and of the tests
        ran = launch(["-c", f"{show}; subprocess.run([sys.executable, 'work.py'])"], home, AORTA_COLLECTORS="off").ok()
        assert ran.out == f"{left_alone}\n"

    def test_a_front_end_below_a_front_end_belongs_to_the_same_launch(self, home: Path) -> None:
        ran = launch(["nested.py"], home).ok()
        assert ran.err.count("attached layer hooks") == 2
        found = summaries(home / "out")
        one_launch(found)
        assert seen(found) == [(0, 2, "exit")] * 2


class TestTorchrun:
    @pytest.mark.parametrize(
        "start",
        [
            lambda home: run(
                ["torchrun", *TORCHRUN, "-m", "aorta_collectors.layer_numerics", "one_rank.py"],
                home,
                {"NANLOG_DIR": "out"},
            ),
            lambda home: launch(["-m", "torch.distributed.run", *TORCHRUN, "one_rank.py"], home),
        ],
        ids=["around the front-end", "inside it"],
    )
    def test_ranks_of_one_torchrun_are_one_launch(self, home: Path, start: Callable[[Path], Ran]) -> None:
        ran = start(home).ok()
        assert sorted(line.split()[0] for line in ran.out.splitlines()) == ["2", "3"]
        found = summaries(home / "out")
        one_launch(found)
        assert set(found) == {"rank0", "rank1"}
        assert seen(found) == [(0, 2, "exit"), (1, 3, "exit")]
        assert len(set(re.findall(r"PID=(\d+)", ran.err))) == 2


class TestTheNextLaunch:
    def test_it_replaces_files_of_its_own_names_and_names_the_others(
        self, spawned: tuple[Path, Ran, Ran], home: Path
    ) -> None:
        shutil.copytree(spawned[0] / "out", home / "out")
        before = summaries(home / "out")
        ran = launch(["-c", "import work; work.train(2)"], home).ok()
        after = summaries(home / "out")
        assert after["rank1"] == before["rank1"]
        assert (after["rank0"]["steps_seen"], set(after)) == (2, {"rank0", "rank1"})
        assert after["rank0"]["run_id"] not in (None, before["rank0"]["run_id"])
        assert "of an earlier launch, not of this one: summary_rank1.json\n" in ran.err
        assert "earlier launch" not in spawned[1].err
