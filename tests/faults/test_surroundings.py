"""Programs that change their surroundings: descriptors, directories, limits, children. The evidence is right."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.sweeps import EVERY_STEP, PROGRAM, until, verified
from tests.host.support import Sweep, mitigations, once, probe_recipe, sweep_command
from tests.support import PYTHON, records, run

pytestmark = pytest.mark.sweep

#: As a daemon begins, and as it goes on: files of its own, under the numbers that ours had.
CLOSES_ALL = "os.closerange(3, 4096); mine = [open(f'mine_{number}', 'w') for number in range(9)]"
USES_ALL_DESCRIPTORS = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
used = []
try:
    while True:
        used.append(os.open(os.devnull, os.O_RDONLY))
except OSError:
    pass
"""
#: What the process has, and a little.
LITTLE_MEMORY = """
import resource
pages = int(open("/proc/self/statm").read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (48 << 20),) * 2)
"""
SHORT_CHILDREN = """
import subprocess
children = [subprocess.Popen([sys.executable, "-c", "import json"]) for _ in range(20)]
assert [child.wait() for child in children] == [0] * 20
"""
#: Forks twice and lives on in a session of its own; trains once there is a file `go`.
TRAINS_LATER = """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for descriptor in (0, 1, 2):
            os.dup2(os.open(os.devnull, os.O_RDWR), descriptor)
        for _ in range(6000):
            if os.path.exists("go"):
                break
            time.sleep(0.01)
        model(torch.randn(8, 4)).sum().backward()
        with open("went", "w") as stream:
            stream.write("x")
    os._exit(0)
"""
#: Lives on likewise, and then writes into what has been verified.
WRITES_LATER = """
import subprocess
later = '''
import glob, os, time
while not os.path.exists("go"):
    time.sleep(0.01)
path = os.path.join(os.environ["NANLOG_DIR"], "layers_rank0.jsonl")
with open(path) as stream:
    lines = stream.readlines()
with open(path, "w") as stream:
    stream.writelines(lines[:-1] + [lines[-1].replace('"step": 5', '"step": 4').replace('"step":5', '"step":4')])
open("wrote", "w").write("x")
'''
null = subprocess.DEVNULL
subprocess.Popen([sys.executable, "-c", later], start_new_session=True, stdin=null, stdout=null, stderr=null)
"""

CELLS = {
    "closes-all": {"AT_START": CLOSES_ALL},
    "moves-away": {"AT_START": "os.chdir('/'); os.umask(0o077)", "AT_3": SHORT_CHILDREN},
    "little-memory": {"AT_3": LITTLE_MEMORY},
    "no-descriptors": {"AT_3": USES_ALL_DESCRIPTORS},
    "trains-later": {"AT_END": TRAINS_LATER},
    "writes-later": {"AT_END": WRITES_LATER},
}
HEALTHY = [name for name in CELLS if name != "no-descriptors"]


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    def build(directory: Path) -> Sweep:
        (directory / "train.py").write_text(PROGRAM)
        file = mitigations(directory / "m.json", CELLS)
        recipe = probe_recipe(directory / "r.yaml", ["none", *CELLS], collect=EVERY_STEP)
        command = ["python", str(directory / "train.py")]
        return sweep_command(directory, recipe, command, "--mitigations-file", str(file))

    return once(tmp_path_factory, "surroundings", build)


@pytest.fixture(scope="module")
def losses(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the program prints when nobody watches."""
    place = tmp_path_factory.mktemp("bare")
    (place / "train.py").write_text(PROGRAM)
    return run([PYTHON, "train.py"], place).ok().out


@pytest.mark.parametrize("name", ["none", *HEALTHY])
def test_what_does_no_harm_is_captured_to_the_last_record(sweep: Sweep, name: str) -> None:
    receipt = sweep.receipt(name)
    assert receipt["verdict"] == "captured", receipt["reason"]
    assert sweep.command(name)["verdict"] == "pass"
    (process,) = receipt["details"]["processes"]
    assert (process["status"], process["steps_seen"]) == ("complete", 5)
    expected = records(sweep.artifacts("none") / "layers_rank0.jsonl")
    assert process["records_written"] == len(expected)


@pytest.mark.parametrize("name", ["none", *CELLS])
def test_the_programs_results_are_unchanged(sweep: Sweep, name: str, losses: str) -> None:
    assert sweep.stdout(name) == losses
    assert sweep.command(name)["exit_code"] == 0


def test_without_descriptors_the_last_summary_is_missed(sweep: Sweep) -> None:
    receipt = sweep.receipt("no-descriptors")
    assert receipt["verdict"] == "incomplete"
    assert "Too many open files" in receipt["reason"]
    assert sweep.command("no-descriptors")["verdict"] == "error"
    assert sweep.ran.code == 1
    assert "(cells: no-descriptors-none)" in sweep.ran.err


def test_no_file_of_the_program_has_anything_of_ours(sweep: Sweep) -> None:
    mine = sorted(sweep.run_dir.parent.parent.glob("mine_*"))
    assert len(mine) == 9
    assert [path.stat().st_size for path in mine] == [0] * 9


def test_a_daemon_that_goes_on_when_the_trial_is_over_spoils_its_own_evidence_alone(sweep: Sweep) -> None:
    cwd = sweep.run_dir.parent.parent
    before = verified(sweep.run_dir, cwd).verdicts
    assert {name: before[f"{name}-none"] for name in HEALTHY} == dict.fromkeys(HEALTHY, "captured")
    (cwd / "go").touch()
    until(lambda: (cwd / "went").exists() and (cwd / "wrote").exists(), "the daemons do not go on")
    after = verified(sweep.run_dir, cwd)
    assert after.code == 1
    changed = {cell: verdict for cell, verdict in after.verdicts.items() if before[cell] != verdict}
    assert changed == {"trains-later-none": "incomplete", "writes-later-none": "invalid"}
    assert "forked by an observed one" in after.reason("trains-later-none")
    assert "it has been changed since" in after.reason("writes-later-none")
