"""The host's collectors beside ours on one command: in the right order, all seeing the program, or refused."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.host.support import Sweep, aorta, cell, once, probe_recipe, sweep_command, sweep_workload, write_recipe
from tests.support import BIN, PYTHON, summary

pytestmark = pytest.mark.sweep

#: Stands in for AMD's profiler: keeps its command, writes what the host's parser reads, runs what stands behind --.
ROCPROF = f"""#!{PYTHON}
import json, os, sys
own, command = sys.argv[1 : sys.argv.index("--")], sys.argv[sys.argv.index("--") + 1 :]
directory = own[own.index("-d") + 1]
json.dump(command, open(os.path.join(directory, "command.json"), "w"))
with open(os.path.join(directory, "aorta_kernel_stats.csv"), "w") as stream:
    stream.write('"Name","Calls","TotalDurationNs"\\n"gemm",3,6000000\\n')
os.execvp(command[0], command)
"""

#: Stands in for Triton's profiler: runs a script as the real one does, and writes a profile.
PROTON = """
import json, os, runpy, sys
words, name = sys.argv[1:], None
while words[0].startswith("-"):
    name = words[1] if words[0] == "-n" else name
    words = words[2:]
leaf = {"frame": {"name": "gemm"}, "metrics": {"time (ns)": 4000000, "count": 2}, "children": []}
json.dump([{"frame": {"name": "ROOT"}, "metrics": {}, "children": [leaf]}], open(name + ".hatchet", "w"))
sys.argv = words
sys.path.append(os.path.dirname(os.path.abspath(words[0])))
runpy.run_path(words[0], run_name="__main__")
"""

#: Without torch.optim, which loads torch's compiler, and that the real Triton.
PROGRAM = """
import sys
import torch
from torch import nn

model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
for step in range(int(sys.argv[-1])):
    loss = model(torch.ones(2, 4)).sum()
    loss.backward()
    print(step, loss.item(), flush=True)
"""

OURS = {"NANLOG_SAMPLE_EVERY": "1"}
NO_QUEUES = {"backend": "instrumentation"}


@pytest.fixture(scope="module")
def profilers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the profilers: bin/ for PATH, and modules for PYTHONPATH."""
    root = tmp_path_factory.mktemp("profilers")
    (root / "bin").mkdir()
    rocprof = root / "bin" / "rocprofv3"
    rocprof.write_text(ROCPROF)
    rocprof.chmod(0o755)
    package = root / "triton" / "profiler"
    package.mkdir(parents=True)
    for directory in (package.parent, package):
        (directory / "__init__.py").write_text("")
    (package / "proton.py").write_text(PROTON)
    return root


def _env(profilers: Path) -> dict[str, str]:
    return {
        "PATH": os.pathsep.join((str(profilers / "bin"), str(BIN), os.environ.get("PATH", ""))),
        "PYTHONPATH": str(profilers),
    }


@pytest.fixture(scope="module")
def all_three(profilers: Path, tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    def build(directory: Path) -> Sweep:
        (directory / "train.py").write_text(PROGRAM)
        collect = {"layer_numerics": OURS, "proton": NO_QUEUES, "rocprof": {}}
        recipe = probe_recipe(directory / "r.yaml", collect=collect)
        return sweep_command(directory, recipe, ["python", "-u", "train.py", "--steps", "4"], env=_env(profilers))

    return once(tmp_path_factory, "all_three", build)


def test_all_three_see_the_same_program(all_three: Sweep) -> None:
    all_three.ran.ok()
    metrics = all_three.trial()["result"]["metrics"]
    assert (metrics["rocprof_kernel_count"], metrics["proton_kernel_count"]) == (3, 2)
    assert metrics["layer_numerics_steps"] == 4
    assert all_three.receipt()["verdict"] == "captured"
    assert summary(all_three.artifacts())["steps_seen"] == 4
    assert len(all_three.stdout().splitlines()) == 4


def test_ours_stands_within_rocprof_and_hands_the_script_to_proton(all_three: Sweep) -> None:
    command = json.loads((all_three.artifacts().parent / "rocprof" / "command.json").read_text())
    proton = command.index("triton.profiler.proton")
    assert command[: proton + 1] == ["python", "-u", "-m", "aorta_collectors.frontend", "-m", "triton.profiler.proton"]
    assert command[-3:] == ["train.py", "--steps", "4"]


def test_the_receipt_has_the_launch_as_it_was(all_three: Sweep) -> None:
    receipt = all_three.receipt()
    assert receipt["launch"]["argv"] == all_three.command()["argv"]
    assert Path(receipt["launch"]["argv"][0]).name == "rocprofv3"
    assert receipt["note"]
    assert receipt["ignored_environment"] == []


def _dry(directory: Path, profilers: Path, collect: dict[str, Any], *command: str) -> tuple[int, str, str]:
    recipe = probe_recipe(directory / "r.yaml", collect=collect)
    words = ["sweep", "run", "--recipe", str(recipe), "--dry-run", "--", *(command or ("python", "train.py"))]
    ran = aorta(words, directory, _env(profilers))
    assert not (directory / "TRIAL_DIR").exists()
    return ran.code, ran.out, ran.err


def test_a_dry_run_shows_the_whole_launch(all_three: Sweep, profilers: Path, tmp_path: Path) -> None:
    collect = {"layer_numerics": OURS, "proton": NO_QUEUES, "rocprof": {}}
    code, out, _ = _dry(tmp_path, profilers, collect, "python", "-u", "train.py", "--steps", "4")
    assert code == 0
    words = shlex.split(out.splitlines()[-1])
    started = words[words.index(str(profilers / "bin" / "rocprofv3")) :]
    real = all_three.receipt()["launch"]["argv"]
    trial = str(all_three.artifacts().parent)
    assert started == [word.replace(trial, "TRIAL_DIR") for word in real]


def test_proton_may_leave_the_script_to_ours(profilers: Path, tmp_path: Path) -> None:
    """Told by variables, it starts from within the program; then it stands around the front-end."""
    _, out, _ = _dry(tmp_path, profilers, {"layer_numerics": OURS, "proton": {"mode": "env"}})
    words = shlex.split(out.splitlines()[-1])
    variable = next(index for index, word in enumerate(words) if word.startswith("AORTA_PROTON_"))
    assert Path(words[variable - 1]).name == "env"
    assert words[-4:] == ["python", "-m", "aorta_collectors.frontend", "train.py"]


@pytest.mark.parametrize(
    ("collect", "message"),
    [
        ({"layer_numerics": {"frontend": "aorta"}, "proton": {}}, "cannot go together with proton in mode: cli"),
        ({"layer_numerics": OURS, "proton": {}, "rocprof": {}}, "'rocprof' and 'proton' cannot run together"),
    ],
    ids=["two that run the script", "two that intercept queues"],
)
def test_what_cannot_go_together_is_refused_at_load(
    collect: dict[str, Any], message: str, profilers: Path, tmp_path: Path
) -> None:
    code, out, err = _dry(tmp_path, profilers, collect)
    assert code == 1
    assert message in err
    assert "Traceback" not in err
    assert "dry run" not in out


def test_a_profiler_that_cannot_attach_is_shown_as_refused(profilers: Path, tmp_path: Path) -> None:
    _, out, _ = _dry(tmp_path, profilers, {"layer_numerics": OURS, "proton": {}}, "bash", "launch.sh")
    assert "refused: proton mode 'cli'" in out


def test_two_collectors_with_one_directory_are_refused(tmp_path: Path) -> None:
    info = tmp_path / "site" / "twin-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: twin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[aorta.collectors]\namd_log = twin:Twin\n")
    (info.parent / "twin.py").write_text(
        "from aorta_collectors.layer_numerics.collector import LayerNumerics\n"
        "class Twin(LayerNumerics):\n    name = 'amd_log'\n"
    )
    recipe = probe_recipe(tmp_path / "r.yaml", collect=["amd_log", "layer_numerics"])
    words = ["sweep", "run", "--recipe", str(recipe), "--dry-run", "--", "python", "train.py"]
    ran = aorta(words, tmp_path, {"PYTHONPATH": str(info.parent)})
    assert ran.code == 1
    assert "amd_log and layer_numerics both write into layer_numerics/" in ran.err


def test_the_workload_script_is_profiled_as_well(profilers: Path, tmp_path: Path) -> None:
    """The same composition in the workload flow, cell by cell."""
    (tmp_path / "train.py").write_text(PROGRAM)
    cells = [
        cell("both", collect={"rocprof": {}, "layer_numerics": OURS}),
        cell("profiler", collect=["rocprof"]),
    ]
    argv = ["python", "train.py", "--steps", "4"]
    recipe = write_recipe(tmp_path / "r.yaml", workload="script", workload_config={"argv": argv}, steps=4, cells=cells)
    env = _env(profilers)
    dry = aorta(["sweep", "run", "--recipe", str(recipe), "--dry-run"], tmp_path, env).ok()
    assert shlex.split(dry.out.splitlines()[-1])[-6:] == [
        "python",
        "-m",
        "aorta_collectors.frontend",
        "train.py",
        "--steps",
        "4",
    ]
    sweep = sweep_workload(tmp_path, recipe, env=env)
    sweep.ran.ok()
    receipt = sweep.receipt("both")
    assert receipt["verdict"] == "captured"
    assert receipt["route"] == "front-end"
    assert Path(receipt["launch"]["argv"][0]).name == "rocprofv3"
    for name in ("both", "profiler"):
        assert sweep.trial(name)["result"]["metrics"]["rocprof_kernel_count"] == 3
    command = json.loads((sweep.artifacts("profiler").parent / "rocprof" / "command.json").read_text())
    assert command == argv
