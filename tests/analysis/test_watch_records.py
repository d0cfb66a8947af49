"""Records that come in are folded into the largest magnitudes, the trend and the bad tensors, in whatever order."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aorta_collectors.analysis.live_records import LiveRecords
from aorta_collectors.analysis.snapshot import Magnitudes
from aorta_collectors.layer_numerics.order import Line
from tests.captured.synthetic import record


def lines(rank: int, records: list[dict[str, Any]]) -> list[bytes]:
    identity = {"rank": rank, "gpu": rank, "host": "here", "pid": 1000 + rank}
    return [json.dumps({**entry, **identity}).encode() for entry in records]


def folded(*chunks: tuple[int, list[bytes]]) -> Magnitudes:
    live = LiveRecords()
    for rank, chunk in chunks:
        live.take(chunk, Line(0, rank, False, 0).position)
    return live.state(0)


STEPS = st.lists(
    st.tuples(
        st.sampled_from("abc"),
        st.sampled_from((0.0, 0.5, 2.0, 7e4, 1e38, None)),
        st.sampled_from(("", "nans", "infs", "huge")),
        st.sampled_from(("torch.float32", "torch.float16")),
    ),
    max_size=10,
)


def of_rank(rank: int, seen: list[tuple[str, float | None, str, str]]) -> list[bytes]:
    made = [
        record(
            number // 2 + 1,
            layer,
            seq=number % 2,
            high=high,
            dtype=dtype,
            **({kind: 1} if kind else {}),
        )
        for number, (layer, high, kind, dtype) in enumerate(seen)
    ]
    return lines(rank, made)


@given(STEPS, STEPS, st.lists(st.integers(0, 1), max_size=20), st.lists(st.integers(1, 4), min_size=1, max_size=8))
def test_the_order_in_which_ranks_are_read_changes_nothing(
    first: Any, second: Any, turns: list[int], sizes: list[int]
) -> None:
    whole = [of_rank(0, first), of_rank(1, second)]
    left = [list(whole[0]), list(whole[1])]
    chunks = []
    for index, turn in enumerate([*turns, *[0, 1] * 20]):
        size = sizes[index % len(sizes)]
        chunks.append((turn, left[turn][:size]))
        del left[turn][:size]
    assert folded(*chunks) == folded((0, whole[0]), (1, whole[1]))


@given(STEPS, STEPS)
def test_the_worst_is_what_came_nearest_to_the_limit_of_its_dtype(first: Any, second: Any) -> None:
    nearest: dict[str, tuple[float, int, int, float]] = {}
    for line in [*of_rank(0, first), *of_rank(1, second)]:
        entry = json.loads(line)
        if entry["finite_abs_max"]:
            limit = 65504.0 if entry["dtype"] == "torch.float16" else 3.4028234663852886e38
            share = entry["finite_abs_max"] / limit
            seen = (share, -entry["step"], -entry["rank"], entry["finite_abs_max"])
            nearest[entry["layer_name"]] = max(seen, nearest.get(entry["layer_name"], seen))
    found = folded((0, of_rank(0, first)), (1, of_rank(1, second))).worst
    assert {seen.tensor["module_path"]: (-seen.step, -seen.rank, seen.abs_max) for seen in found} == {
        layer: seen[1:] for layer, seen in nearest.items()
    }
    assert [nearest[seen.tensor["module_path"]][0] for seen in found] == sorted(
        (seen[0] for seen in nearest.values()), reverse=True
    )


def test_headroom_is_in_bits_below_the_dtypes_limit() -> None:
    found = folded(
        (0, lines(0, [record(1, "half", high=65504.0 / 8, dtype="torch.float16"), record(1, "zero", high=0.0)]))
    )
    assert [(seen.tensor["module_path"], seen.headroom) for seen in found.worst] == [("half", pytest.approx(3.0))]


def test_bad_tensors_stand_in_the_order_in_which_they_became_bad_over_ranks() -> None:
    slow = [record(2, "a", nans=1), record(3, "b", infs=1), record(4, "b", nans=1)]
    fast = [record(3, "a", nans=1), record(9, "c", huge=1)]
    found = folded((1, lines(1, fast)), (0, lines(0, slow)))
    assert [
        (bad.tensor["module_path"], bad.step, bad.rank, bad.kind, bad.last_step, bad.records) for bad in found.bad
    ] == [
        ("a", 2, 0, "nan", 3, 2),
        ("b", 3, 0, "inf", 4, 2),
        ("c", 9, 1, "huge", 9, 1),
    ]
    assert [(point.step, point.kind) for point in found.trend] == [(2, "nan"), (3, "nan"), (4, "nan"), (9, "huge")]


def test_numbers_that_no_file_should_hold_are_passed_over() -> None:
    beyond = [
        json.dumps(record(2, high=1.0)).replace('_abs_max": 1.0', '_abs_max": ' + value) for value in ("1e999", "-3.0")
    ]
    found = folded((0, [*lines(0, [record(1)]), *(line.encode() for line in beyond)]))
    json.dumps(dataclasses.asdict(found), allow_nan=False)
    assert [point.abs_max for point in found.trend][:1] == [1.0]


def test_the_last_steps_of_many_are_kept() -> None:
    found = folded((0, lines(0, [record(step, high=float(step)) for step in range(1, 1500)])))
    assert [point.abs_max for point in found.trend] == [float(step) for step in range(1300, 1500)]


def test_lines_that_are_no_records_are_counted_and_the_rest_is_taken() -> None:
    whole = lines(0, [record(1, "a"), record(2, "b")])
    found = folded((0, [whole[0], b'{"type": "layer_st', b"", b"[1]", b'{"step": "x"}', whole[1]]))
    assert found.unreadable_lines == 4
    assert {seen.tensor["module_path"] for seen in found.worst} == {"a", "b"}


def test_records_of_the_stock_logger_are_taken() -> None:
    old = record(3, "fc", nans=1)
    for key in ("seq", "invocation", "module_path", "tensor_path", "optimizer_step"):
        del old[key]
    found = folded((0, lines(0, [old])))
    assert [(bad.tensor["module_path"], bad.step) for bad in found.bad] == [("fc", 3)]
