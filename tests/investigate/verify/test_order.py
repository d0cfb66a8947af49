"""The order of runs as `verify` sees it: by the times at which they began and ended."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aorta_collectors.investigate.files import Run
from aorta_collectors.investigate.verify.runs import order_faults


def _runs(starts: list[int]) -> list[Run]:
    """Runs of one second each, in the schedule's order."""
    began = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)
    found = []
    for number, start in enumerate(starts, 1):
        times = [(began + datetime.timedelta(seconds=second)).isoformat() for second in (start, start + 1)]
        record = {"number": number, "attempt": 1, "started_at": times[0], "ended_at": times[1]}
        found.append(Run(Path(f"/runs/{number:03d}"), record))
    return found


class TestOrder:
    @given(st.lists(st.integers(0, 10_000), min_size=1, max_size=12, unique=True), st.randoms())
    def test_runs_in_order_have_no_fault_and_a_swap_has_one_where_it_begins(self, starts: list[int], draw: Any) -> None:
        ordered = sorted(starts)
        assert list(order_faults(_runs(ordered), None)) == []
        if len(ordered) < 2:
            return
        a, b = sorted(draw.sample(range(len(ordered)), 2))
        ordered[a], ordered[b] = ordered[b], ordered[a]
        found = [fault.place for fault in order_faults(_runs(ordered), None)]
        assert f"/runs/{a + 2:03d}/run.json" in found
        assert f"/runs/{b + 1:03d}/run.json" in found

    def test_runs_that_overlap_and_runs_before_the_beginning(self) -> None:
        runs = _runs([0, 10])
        runs[0].record["ended_at"] = "2026-01-01T00:00:30+00:00"  # type: ignore[index]
        assert [fault.what for fault in order_faults(runs, "2026-01-01T00:00:05+00:00")] == [
            "it was started before 001 had ended",
            "it was started before the investigation was",
        ]

    @pytest.mark.parametrize("text", ["soon", "2026-01-01T00:00:00"])
    def test_what_is_no_time_is_a_fault(self, text: str) -> None:
        runs = _runs([0])
        runs[0].record["started_at"] = text  # type: ignore[index]
        assert [fault.what for fault in order_faults(runs, None)] == ["its times are none"]
