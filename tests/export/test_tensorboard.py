"""What TensorBoard reads back is what the records say."""

from __future__ import annotations

import math
from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from aorta_collectors.analysis.database import Database
from aorta_collectors.analysis.search import captures_below
from aorta_collectors.export.tensorboard import _safe, write_tensorboard
from tests.captured.synthetic import record, write
from tests.support import PYTHON, run


def _scalars(directory: Path) -> dict[str, list[tuple[int, float]]]:
    found = EventAccumulator(str(directory), size_guidance={"scalars": 0})
    found.Reload()
    return {tag: [(event.step, event.value) for event in found.Scalars(tag)] for tag in found.Tags()["scalars"]}


def test_scalars_are_the_magnitudes_and_bad_elements_of_each_rank(tmp_path: Path) -> None:
    good = [record(step, "m.0", high=float(step)) for step in (1, 2, 3)]
    lines = [
        *good,
        record(1, "m.1", seq=1, role="igrad", high=2.0),
        record(2, "m.1", seq=1, role="igrad", high=2.0, nans=2, infs=1),
        record(2, "m.1", seq=2, role="igrad", high=4.0),  # another call of the same step
        record(3, "m.1", seq=1, role="igrad", high=None, nans=8),
        record(3, "m.0", seq=3, role="weight", param_name="weight", high=1e300),
    ]
    place = write(tmp_path / "in", {0: lines, 1: good})
    with Database(captures_below(place)) as database:
        write_tensorboard(database, tmp_path / "out", "true")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"rank0", "rank1"}
    scalars = _scalars(tmp_path / "out" / "rank0")
    assert set(scalars) == {"act_abs_max/m.0", "igrad_abs_max/m.1", "igrad_bad/m.1", "weight_abs_max/m.0.weight"}
    assert scalars["act_abs_max/m.0"] == [(1, 1.0), (2, 2.0), (3, 3.0)]
    *finite, (step, lost) = scalars["igrad_abs_max/m.1"]
    assert (finite, step, math.isnan(lost)) == ([(1, 2.0), (2, 4.0)], 3, True)
    assert scalars["igrad_bad/m.1"] == [(1, 0.0), (2, 3.0), (3, 8.0)]
    assert scalars["weight_abs_max/m.0.weight"] == [(3, math.inf)]  # a scalar has 32 bits
    assert set(_scalars(tmp_path / "out" / "rank1")) == {"act_abs_max/m.0"}


def test_names_cannot_lead_out_of_the_directory() -> None:
    for name in ("..", "../../etc", "/etc", "a/b", ".hidden", "", "x\n", "ü" * 500):
        safe = _safe(name)
        assert "/" not in safe
        assert not safe.startswith(".")
        assert len(safe) <= 201


def test_without_tensorboard_the_error_names_the_extra(tmp_path: Path) -> None:
    place = write(tmp_path / "in", {0: [record(1)]})
    code = (
        "import sys; sys.modules['tensorboard'] = None; from aorta_collectors.cli import main; "
        f"sys.argv = ['aorta-collectors', 'export', {str(place)!r}, '--format', 'tensorboard', '-o', 'out']; main()"
    )
    ran = run([PYTHON, "-c", code], tmp_path)
    assert ran.code == 1
    assert "pip install 'aorta-collectors[tensorboard]'" in ran.err
    assert [path.name for path in tmp_path.iterdir()] == ["in"]
