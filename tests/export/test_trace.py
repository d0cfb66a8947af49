"""A trace is in the Trace Event Format, and its times are those of the records."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from aorta_collectors.analysis.database import Database
from aorta_collectors.analysis.search import captures_below
from aorta_collectors.export.trace import _timed, write_trace
from tests.captured.synthetic import Record, record, write

#: What the format demands of an event, by ph.
FIELDS = {
    "M": {"name", "pid", "tid", "args"},
    "X": {"name", "cat", "pid", "tid", "ts", "dur", "args"},
    "C": {"name", "pid", "tid", "ts", "args"},
    "i": {"name", "cat", "pid", "tid", "ts", "s", "args"},
}


def _trace(tmp_path: Path, lines: list[Record], tracks: int = 50, **summary: Any) -> list[dict[str, Any]]:
    place = write(tmp_path / "in", {0: lines}, {0: summary})
    with Database(captures_below(place)) as database:
        write_trace(database, tmp_path / "trace", "true", tracks)
    return checked(tmp_path / "trace")


def checked(path: Path) -> list[dict[str, Any]]:
    """The events, all of which have what their kind must have."""
    content = json.loads(path.read_text())
    assert content["displayTimeUnit"] == "ms"
    events: list[dict[str, Any]] = content["traceEvents"]
    for event in events:
        assert set(event) - {"ph"} == FIELDS[event["ph"]], event
        assert all(isinstance(event[key], int) for key in ("pid", "tid"))
        assert all(event[key] >= 0 and math.isfinite(event[key]) for key in ("ts", "dur") if key in event)
        if event["ph"] == "C":
            assert all(isinstance(value, float) for value in event["args"].values())
        if event["ph"] == "i":
            assert event["s"] in ("g", "p", "t")
    return events


def _of(events: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [event for event in events if event["ph"] == kind]


def test_steps_counters_and_bad_records_are_where_they_were(tmp_path: Path) -> None:
    lines = [
        record(1, "a", high=1.0, t=100.0),
        record(2, "a", high=1e20, huge=1, t=100.010),
        record(3, "a", high=None, nans=8, t=100.030),
    ]
    events = _trace(tmp_path, lines, step_times_ms=[10.0, 20.0])
    assert [(slice_["name"], slice_["ts"], slice_["dur"]) for slice_ in _of(events, "X")] == [
        ("step 1", 0, 10_000),
        ("step 2", 10_000, 20_000),
    ]
    assert [(event["name"], event["ts"], event["args"]) for event in _of(events, "C")] == [
        ("a act", 0, {"log10": 0.0}),
        ("a act", 10_000, {"log10": 20.0}),
    ]
    huge, nan = _of(events, "i")
    assert (huge["name"], huge["ts"], huge["args"]["step"]) == ("huge in a act", 10_000, 2)
    assert (nan["name"], nan["ts"], nan["args"]["nan_count"]) == ("nan in a act", 30_000, 8)
    assert "finite_abs_max" not in nan["args"]
    names = [event["args"]["name"] for event in _of(events, "M") if event["name"] == "process_name"]
    assert names == ["rank 0"]


def test_counters_are_of_what_went_bad_then_of_the_largest(tmp_path: Path) -> None:
    lines = [record(1, name, seq=seq, high=high) for seq, (name, high) in enumerate([("small", 1), ("large", 1e9)])]
    lines += [record(1, "bad", seq=2, high=0.1, nans=1), record(1, "worse", seq=3, high=0.01, infs=1)]
    events = _trace(tmp_path, lines, tracks=3)
    assert {event["name"] for event in _of(events, "C")} == {"bad act", "worse act", "large act"}
    assert len(_of(events, "i")) == 2
    assert _of(_trace(tmp_path, lines, tracks=0), "C") == []


def test_each_rank_is_a_process_of_its_own_whose_time_begins_with_it(tmp_path: Path) -> None:
    ranks = {rank: [record(1, "a", t=1000.0 * rank + 5), record(2, "a", t=1000.0 * rank + 6)] for rank in (0, 1)}
    place = write(tmp_path / "in", ranks)
    with Database(captures_below(place)) as database:
        write_trace(database, tmp_path / "trace", "true", 50)
    events = checked(tmp_path / "trace")
    assert {(event["pid"], event["ts"]) for event in _of(events, "C")} == {(1, 0), (1, 1e6), (2, 0), (2, 1e6)}


def test_a_capture_without_a_record_is_a_trace_without_a_counter(tmp_path: Path) -> None:
    events = _trace(tmp_path, [], step_times_ms=[1.0], steps_per_time=2)
    assert [event["name"] for event in _of(events, "X")] == ["steps 1 to 2"]
    assert _of(events, "C") == []


@given(
    durations=st.lists(st.floats(0.01, 1000), min_size=1, max_size=20),
    begin=st.floats(0, 1e6),
    late=st.lists(st.floats(0, 1), min_size=1, max_size=20),
)
def test_no_step_begins_after_its_first_record(durations: list[float], begin: float, late: list[float]) -> None:
    """Records are read some time into their step; the least of that is taken to be none."""
    real = [begin + sum(durations[:index]) / 1000 for index in range(len(durations))]
    into = [late[index % len(late)] * duration / 1000 for index, duration in enumerate(durations)]
    first = [(index + 1, at + after) for index, (at, after) in enumerate(zip(real, into, strict=True))]
    process = _timed(1, "p", {"step_times_ms": durations}, first)
    for (step, at), (shown, _, _) in zip(first, process.steps, strict=True):
        assert shown <= at - process.zero + 1e-6
        assert abs(shown + process.zero - (real[step - 1] + min(into))) < 1e-6
    assert all(shown >= 0 for shown, _, _ in process.steps)
