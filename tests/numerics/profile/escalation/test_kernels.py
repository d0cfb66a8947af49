"""Attributing operations to bricks by when they ran."""

from __future__ import annotations

import weakref
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from aorta_collectors.numerics.brick import Brick, Timing
from aorta_collectors.numerics.profile.escalation import kernels
from aorta_collectors.numerics.profile.escalation.profiled import Operation

_MODULE = nn.Linear(1, 1)
_BRICK = Brick(weakref.ref(_MODULE), "a", "Linear", "", None, True, False, None, 0)


def _timing(start: int, end: int) -> Timing:
    return Timing(_BRICK, "forward", start, end, 0)


def _operation(name: str = "aten::mm", at: int = 0, us: float = 1.0, device_us: float | None = None) -> Operation:
    return Operation(name, at, at + round(us * 1000), at, us, device_us, False)


_ranges = st.lists(st.tuples(st.integers(0, 100), st.integers(0, 30)), max_size=8)


@given(_ranges, st.lists(st.integers(0, 140), max_size=30))
def test_what_began_inside_a_call_is_the_bricks(ranges: list[tuple[int, int]], at: list[int]) -> None:
    timings = [_timing(start, start + length) for start, length in ranges]
    found = kernels.inside([_operation(at=each) for each in at], timings)
    expected = [each for each in at if any(start <= each < start + length for start, length in ranges)]
    assert [operation.at_ns for operation in found] == expected


def test_a_kernel_belongs_to_where_it_was_launched() -> None:
    kernel = Operation("gemm", 900, 950, 15, 0.0, 0.05, True)
    assert kernels.inside([kernel], [_timing(10, 20)]) == [kernel]
    assert kernels.inside([kernel], [_timing(890, 960)]) == []


def test_rows_are_by_name_the_longest_first_and_at_most_twenty() -> None:
    operations = [_operation(f"op{index}", us=float(index)) for index in range(30)]
    operations += [_operation("op5", us=100.0), _operation("copy", us=1.0, device_us=50.0)]
    rows = kernels.rows(operations)
    assert len(rows) == 20
    assert rows[0] == {"name": "op5", "calls": 2, "self_us": 105.0, "device_us": None}
    assert rows[1] == {"name": "copy", "calls": 1, "self_us": 1.0, "device_us": 50.0}
    assert rows[2]["name"] == "op29"


class _Spans:
    def __init__(self) -> None:
        self.added: list[tuple[Any, ...]] = []

    def add(self, *args: Any) -> None:
        self.added.append(args)


def test_spans_are_of_the_innermost_brick_and_launches_have_the_steps_name() -> None:
    launch = _operation("cudaLaunchKernel", at=12)
    inner, outer = _operation(at=11), _operation("aten::add", at=30)
    spans = _Spans()
    kernels.add_spans(spans, {("a", "forward"): [inner, launch, outer], ("a.b", "forward"): [inner, launch]})
    assert [(added[0], added[4], added[6].get("operation")) for added in spans.added] == [
        ("aten::mm", "a.b", None),
        ("KERNEL_LAUNCH", "a.b", "cudaLaunchKernel"),
        ("aten::add", "a", None),
    ]
    assert {added[1] for added in spans.added} == {"kernel"}


def test_of_very_many_the_longest_thousand_are_kept() -> None:
    operations = [_operation(at=index, us=float(index)) for index in range(1500)]
    spans = _Spans()
    kernels.add_spans(spans, {("a", "forward"): operations})
    assert [added[2] for added in spans.added] == list(range(500, 1500))
