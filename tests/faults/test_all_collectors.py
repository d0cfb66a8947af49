"""All collectors at once, on programs that are hard on them: each has its evidence, and the program its results."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.sweeps import PROGRAM
from tests.host.support import OURS, Sweep, mitigations, once, probe_recipe
from tests.support import PYTHON, run

pytestmark = pytest.mark.sweep

COLLECT = {
    "layer_numerics": {"NANLOG_SAMPLE_EVERY": "1"},
    "numerics": {"trace": "layer"},
    "tensors": {"keep": "values"},
    "memory": {},
}
#: Trains in a thread as well, forks, and leaves in the next step, in a hook that ours are called beside.
LEAVES_IN_A_HOOK = """
import threading
thread = threading.Thread(target=lambda: model(torch.ones(8, 4)).sum().backward())
thread.start()
thread.join()
model.zero_grad()
if os.fork() == 0:
    os._exit(0)
os.wait()
model.register_forward_hook(lambda *_: sys.exit(0))
"""
#: Cell -> variables, steps that the program prints, what each collector says.
CELLS = {
    "leaves": ({"AT_3": LEAVES_IN_A_HOOK}, 3, ("captured", "")),
    "killed": ({"KILL_AT": "step 9"}, 2, ("incomplete", "rank 0 died in step 3; evidence ends there")),
}


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    def build(directory: Path) -> Sweep:
        (directory / "train.py").write_text(PROGRAM)
        file = mitigations(directory / "m.json", {cell: variables for cell, (variables, _, _) in CELLS.items()})
        recipe = probe_recipe(directory / "r.yaml", list(CELLS), collect=COLLECT)
        words = ["sweep", "run", "--recipe", str(recipe), "--output", "out", "--mitigations-file", str(file)]
        ran = run([OURS, *words, "--", "python", str(directory / "train.py")], directory)
        return Sweep(ran, directory / "out" / "T-1", "probe")

    return once(tmp_path_factory, "all-collectors", build)


@pytest.mark.parametrize("cell", CELLS)
def test_the_program_does_what_it_does_alone(sweep: Sweep, cell: str, tmp_path: Path) -> None:
    variables, steps, _ = CELLS[cell]
    (tmp_path / "train.py").write_text(PROGRAM)
    bare = run([PYTHON, "train.py"], tmp_path, variables)
    assert bare.out.count("\n") == steps
    assert sweep.stdout(cell) == bare.out
    assert sweep.command(cell)["exit_code"] == bare.code


@pytest.mark.parametrize("collector", COLLECT)
@pytest.mark.parametrize("cell", CELLS)
def test_each_collector_has_a_verdict_of_its_own(sweep: Sweep, cell: str, collector: str) -> None:
    receipt = sweep.receipt(cell, collector=collector)
    verdict, reason = CELLS[cell][2]
    assert (receipt["verdict"], receipt["reason"][: len(reason)]) == (verdict, reason), receipt["reason"]
    assert sweep.artifacts(cell, collector=collector).is_dir()
