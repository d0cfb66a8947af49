"""Overlapping memory: of real tensors, and of ranges held against a count byte by byte."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aorta_collectors.analysis.database import Database
from aorta_collectors.analysis.overlap import Bad, overlaps
from aorta_collectors.analysis.search import captures_below
from aorta_collectors.errors import ArtifactError
from tests.captured.synthetic import Record, record, write
from tests.support import PYTHON, run

BASE = 0x7F0000001000

# Of one buffer the third layer hands out rows 5 and 6, which lie within what the second one hands out, and in its third
# call writes NaN into them.
PROGRAM = """
import torch
from torch import nn
torch.manual_seed(0)
memory = torch.zeros(16, 8)

class Keeps(nn.Module):
    def forward(self, x):
        memory[4:12].copy_(x)
        return memory[4:12]

class Spoils(nn.Module):
    calls = 0
    def forward(self, x):
        self.calls += 1
        rows = memory[5:7]
        return rows.fill_(float("nan")) if self.calls == 3 else rows

model = nn.Sequential(nn.Linear(8, 8), Keeps(), Spoils(), nn.Linear(8, 8))
with torch.no_grad():
    for _ in range(4):
        model(torch.randn(8, 8))
"""
SPEC = """{"watch": [{"scope": {"types": ["*"]}, "tensors": ["input", "output"]}], "diagnostics": ["addr"],
"sample_every": 1}"""


def of(directory: Path, **asked: Any) -> tuple[Bad, ...]:
    with Database(captures_below(directory)) as database:
        return overlaps(database, **asked)


def at(start: int, nbytes: int, offset: int = 0, **more: Any) -> dict[str, Any]:
    """Fields of a record whose memory begins at BASE + start."""
    fields = {
        "data_ptr": hex(BASE + start + offset),
        "storage_ptr": hex(BASE + start),
        "storage_offset_bytes": offset,
        "storage_nbytes": nbytes,
    }
    return {**fields, **more}


def test_a_write_into_a_view_is_found_in_what_it_views(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    environment = {"NANLOG_DIR": "out", "NANLOG_SPEC": SPEC}
    run([PYTHON, "-m", "aorta_collectors.layer_numerics", "program.py"], tmp_path, environment).ok()
    (bad,) = of(tmp_path / "out")
    assert (bad.record["step"], bad.record["layer"], bad.record["nan_count"]) == (3, "2", 16)
    found = [
        (overlap.record["step"], overlap.record["layer"], overlap.record["role"], overlap.num_bytes, overlap.before)
        for overlap in bad.overlaps
        if overlap.relation == "same bytes"
    ]
    rows = 2 * 8 * 4
    before = [
        (2, "1", "act"),
        (2, "2", "input"),
        (2, "2", "act"),
        (2, "3", "input"),
        (3, "1", "act"),
        (3, "2", "input"),
    ]
    assert found == [*((*place, rows, True) for place in before), (3, "3", "input", rows, False)]
    assert [overlap.record["layer"] for overlap in bad.overlaps if overlap.same_tensor] == ["2"]
    # The layers' own tensors lie elsewhere.
    assert "0" not in {overlap.record["layer"] for overlap in bad.overlaps}
    assert bad.num_overlaps < bad.num_same - 1 + bad.num_before


def test_steps_before_the_last_one_and_after_do_not_count(tmp_path: Path) -> None:
    lines = [record(step, nans=step == 5, **at(0, 32)) for step in range(1, 8)]
    (bad,) = of(write(tmp_path / "d", {0: lines}))
    assert [overlap.record["step"] for overlap in bad.overlaps] == [4]
    assert bad.overlaps[0].same_tensor


def test_a_view_that_ends_before_the_bad_one_may_still_reach_into_it(tmp_path: Path) -> None:
    lines = [record(1, "view", seq=0, **at(0, 64)), record(1, "bad", seq=1, nans=1, **at(0, 64, 32))]
    (bad,) = of(write(tmp_path / "d", {0: lines}))
    (overlap,) = bad.overlaps
    assert (overlap.relation, overlap.num_bytes) == ("same storage", 32)


def test_addresses_of_two_processes_are_not_compared(tmp_path: Path) -> None:
    ranks = {0: [record(1, nans=1, **at(0, 32))], 1: [record(1, "other", **at(0, 32))]}
    (bad,) = of(write(tmp_path / "d", ranks))
    assert (bad.num_overlaps, bad.num_same) == (0, 1)


def test_each_process_has_its_own_first_bad_record(tmp_path: Path) -> None:
    ranks = {rank: [record(rank + 1, nans=1, **at(0, 32)), record(9, nans=1, **at(0, 32))] for rank in (0, 1)}
    directory = write(tmp_path / "d", ranks)
    assert [(bad.record["rank"], bad.record["step"]) for bad in of(directory)] == [(0, 1), (1, 2)]
    assert [bad.record["step"] for bad in of(directory, step=9)] == [9, 9]


def test_another_step_and_another_layer_can_be_asked_for(tmp_path: Path) -> None:
    lines = [record(step, layer, seq=seq, nans=1, **at(0, 32)) for step in (1, 2) for seq, layer in enumerate("ab")]
    directory = write(tmp_path / "d", {0: lines})
    (bad,) = of(directory, step=2, layer="b")
    assert (bad.record["step"], bad.record["layer"]) == (2, "b")
    assert [(overlap.record["step"], overlap.record["layer"]) for overlap in bad.overlaps] == [
        (1, "a"),
        (1, "b"),
        (2, "a"),
    ]
    assert of(directory, step=3) == ()


def test_a_layer_is_named_as_for_trajectory(tmp_path: Path) -> None:
    directory = write(tmp_path / "d", {0: [record(1, "blocks.0.attention", nans=1, **at(0, 32))]})
    assert [bad.record["layer"] for bad in of(directory, layer="attention")] == ["blocks.0.attention"]
    with pytest.raises(ArtifactError, match=r"blocks\.0\.atention.*near: blocks\.0\.attention"):
        of(directory, layer="blocks.0.atention")


def test_without_addresses_it_says_how_to_get_them(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="NANLOG_ADDR=1"):
        of(write(tmp_path / "d", {0: [record(1, nans=1)]}))


def test_without_a_bad_record_there_is_nothing_to_ask(tmp_path: Path) -> None:
    assert of(write(tmp_path / "d", {0: [record(1)]})) == ()
    assert of(write(tmp_path / "e", {0: []})) == ()


def test_the_nearest_are_listed_and_all_are_counted(tmp_path: Path) -> None:
    lines = [record(1, f"layer{seq}", seq=seq, nans=seq == 9, **at(0, 32)) for seq in range(12)]
    (bad,) = of(write(tmp_path / "d", {0: lines}), most=3)
    assert bad.num_overlaps == 11
    assert [overlap.record["layer"] for overlap in bad.overlaps] == ["layer6", "layer7", "layer8"]


def test_addresses_that_are_none_are_passed_over(tmp_path: Path) -> None:
    lines = [record(1, nans=1, **at(0, 32)), record(1, "b", seq=1, **{**at(0, 32), "data_ptr": "nowhere"})]
    (bad,) = of(write(tmp_path / "d", {0: lines}))
    assert (bad.num_overlaps, bad.num_same) == (0, 1)


_TENSOR = st.tuples(
    st.integers(0, 6),  # where the memory begins, in units of 8 bytes
    st.integers(1, 8),  # its size
    st.integers(0, 8),  # where in it the tensor begins
    st.sampled_from([("torch.float32", 4), ("torch.float16", 2), ("torch.uint8", 1), ("torch.unheard_of", 0)]),
)


@given(tensors=st.lists(_TENSOR, min_size=2, max_size=8))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_overlaps_are_those_counted_byte_by_byte(
    tmp_path_factory: pytest.TempPathFactory, tensors: list[tuple[int, int, int, tuple[str, int]]]
) -> None:
    lines: list[Record] = []
    contiguous: list[set[int]] = []
    possible: list[set[int]] = []
    for seq, (start, size, offset, (dtype, itemsize)) in enumerate(tensors):
        begin, end = 8 * (start + min(offset, size - 1)), 8 * (start + size)
        place = at(8 * start, 8 * size, begin - 8 * start)
        lines.append(record(1, f"layer{seq}", seq=seq, nans=not seq, dtype=dtype, **place))
        possible.append(set(range(begin, end)))
        contiguous.append(set(range(begin, min(end, begin + 8 * itemsize))))
    (bad,) = of(write(tmp_path_factory.mktemp("property"), {0: lines}))
    expected = []
    for other in range(1, len(tensors)):
        if shared := len(contiguous[0] & contiguous[other]):
            expected.append((f"layer{other}", "same bytes", shared))
        elif shared := len(possible[0] & possible[other]):
            expected.append((f"layer{other}", "same storage", shared))
    assert [(o.record["layer"], o.relation, o.num_bytes) for o in bad.overlaps] == expected
