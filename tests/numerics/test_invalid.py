"""Files that are not there, of another trial, damaged, forged, or of any content at all. Never an exception."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aorta_collectors.api import Verdict
from aorta_collectors.evidence.directory import Anchor
from aorta_collectors.numerics.verify.metrics import step_times_ms, summarize
from aorta_collectors.schema_check import load_schema
from tests.numerics.synthetic import escalation, span, step_line, write
from tests.numerics.verified import ALL, check, edit_lines, told


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "trial" / "numerics"


@pytest.mark.parametrize(
    ("route", "why"),
    [
        ("front-end", "the program ended before it imported torch"),
        ("environment", "python -m aorta_collectors.numerics"),
        ("in-process", "the workload did not import torch"),
    ],
)
def test_no_summary(place: Path, route: str, why: str) -> None:
    place.mkdir(parents=True)
    verdict, reason = told(place, route=route)
    assert (verdict, why in reason) == (Verdict.MISSING, True)


@pytest.mark.parametrize("run_id", ["trial-0", None])
def test_a_summary_of_another_trial(place: Path, run_id: str | None) -> None:
    write(place, ranks=2, by_rank={1: {"run_id": run_id}})
    verdict, reason = told(place)
    assert verdict is Verdict.STALE
    assert f"summary_rank1.json is from another run (run id {run_id}" in reason


@pytest.mark.parametrize(("kind", "key"), [("spans", "trace_id"), ("stats", "pid"), ("steps", "rank")])
def test_a_line_of_another_process(place: Path, kind: str, key: str) -> None:
    config = {"trace": "layer"}
    write(place, config=config)
    edit_lines(place, kind, lambda lines: lines[2].update({key: "f" * 32 if key == "trace_id" else 7}))
    verdict, reason = told(place, config)
    assert verdict is Verdict.STALE
    assert reason.startswith(f"{kind}_rank0.jsonl: line 3 is from process ")


@pytest.mark.parametrize("kind", ["spans", "stats", "steps", "escalations"])
def test_a_file_that_is_gone_cut_or_has_more(place: Path, kind: str) -> None:
    lines = [escalation("h.0"), escalation("h.1")]
    write(place, config=ALL, escalations=lines)
    path = place / f"{kind}_rank0.jsonl"
    text = path.read_text()
    count = text.count("\n")
    expected = {
        "": f": 0 line(s), but the summary says {count}",
        text[:-20]: f": line {count} is torn off",
        text[: text.rindex("\n", 0, -1) + 1]: f": {count - 1} line(s), but the summary says {count}",
        text + text.splitlines(keepends=True)[-1]: f": {count + 1} line(s), but the summary says {count}",
        text.replace('"step"', '"stop"'): ": line 1: ",
        text.replace(": ", ": NaN, ", 1): ": line 1: ",
    }
    for damaged, why in expected.items():
        path.write_text(damaged)
        verdict, reason = told(place, ALL)
        assert verdict is Verdict.INVALID
        assert reason.startswith(f"{kind}_rank0.jsonl{why}")
    path.unlink()
    assert told(place, ALL) == (
        Verdict.INVALID,
        f"{kind}_rank0.jsonl is missing beside its summary: the program, or what it ran, removed it",
    )


def test_a_step_that_was_never_begun(place: Path) -> None:
    write(place, step_lines=[step_line(step) for step in (1, 2, 3, 5)])
    assert told(place) == (Verdict.INVALID, "steps_rank0.jsonl: line 4: step 5 of 4")


def test_a_step_that_has_two_lines(place: Path) -> None:
    write(place, step_lines=[step_line(step) for step in (1, 2, 2, 4)])
    assert told(place) == (Verdict.INVALID, "steps_rank0.jsonl: 4 lines of 3 steps")


def test_spans_without_a_step(place: Path) -> None:
    write(place, spans=[span("python", "process", 1)])
    assert told(place) == (Verdict.INVALID, "spans_rank0.jsonl: no step among 1 span(s)")


def test_statistics_that_were_read_and_not_written(place: Path) -> None:
    write(place, config={"trace": "layer"}, stats=[], summary={"tensors_read": 9})
    assert told(place, {"trace": "layer"})[0] is Verdict.INVALID
    write(place, config={"trace": "layer"}, stats=[], summary={"tensors_read": 0, "tensors_checked": 0})
    assert told(place, {"trace": "layer"})[0] is Verdict.UNATTACHED
    # Layers that ran in no step whose statistics are taken.
    write(place, config={"trace": "layer"}, stats=[], summary={"tensors_read": 0, "tensors_checked": 9})
    assert told(place, {"trace": "layer"})[0] is Verdict.CAPTURED
    filtered = {"trace": "layer", "steps": ("sample",)}
    write(place, config=filtered, stats=[])
    assert told(place, filtered)[0] is Verdict.CAPTURED


def test_full_tensors_that_are_gone_or_cut(place: Path) -> None:
    config = {"trace": "payload"}
    write(place, config=config)
    first = place / "payload_rank0_step1.safetensors"
    first.write_bytes(b"")
    for step in (2, 3, 4):
        (place / f"payload_rank0_step{step}.safetensors").write_bytes(bytes(40))
    why = "4 file(s) of 120 bytes, but the summary says 4 with tensors of 128 bytes"
    assert told(place, config) == (Verdict.INVALID, f"payload_rank0_step<N>.safetensors: {why}")
    write(place, config=config)
    first.unlink()
    assert told(place, config)[0] is Verdict.INVALID


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"null",
        b"[1]",
        b"{" * 5000,
        b"[" * 200_000,
        b'{"rank": NaN}',
        b'{"rank": 0, "rank": 1}',
        b"\xff\xfe",
        b'{"a":' * 300 + b"1" + b"}" * 300,
    ],
)
def test_a_summary_that_is_none(place: Path, text: bytes) -> None:
    write(place)
    (place / "summary_rank0.json").write_bytes(text)
    verdict, reason = told(place)
    assert (verdict, reason.startswith("summary_rank0.json: ")) == (Verdict.INVALID, True)


@pytest.mark.parametrize(
    "changes",
    [
        {"rank": 1 << 40},
        {"world_size": 1 << 40},
        {"steps_seen": -1},
        {"files": {"spans": 3}},
        {"files": {"spans": {"written": 1.5, "dropped": 0}}},
        {"first_bad": {"step": "one"}},
        {"stopped": {}},
        {"bricks": [{}]},
        {"config": []},
        {"payload": {"files": "many"}},
        {"warnings": [1]},
    ],
)
def test_a_summary_with_a_field_that_is_not_to_the_schema(place: Path, changes: Mapping[str, Any]) -> None:
    write(place, summary=changes)
    assert told(place)[0] is Verdict.INVALID


def test_links_are_no_files(place: Path) -> None:
    write(place)
    spans = place / "spans_rank0.jsonl"
    shutil.move(spans, place.parent / "elsewhere")
    spans.symlink_to(place.parent / "elsewhere")
    assert told(place)[0] is Verdict.INVALID


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    field=st.sampled_from(sorted(load_schema("numerics.summary")["properties"])),
    value=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["step", "layer", "written", "count", "x"]), inner, max_size=3)
        ),
        max_leaves=6,
    ),
)
def test_a_field_of_any_content_never_raises(tmp_path: Path, field: str, value: Any) -> None:
    directory = tmp_path / "trial" / "numerics"
    if not directory.exists():
        write(directory, config=ALL)
        shutil.copy(directory / "summary_rank0.json", tmp_path / "whole.json")
    whole = json.loads((tmp_path / "whole.json").read_text())
    (directory / "summary_rank0.json").write_text(json.dumps({**whole, field: value}))
    found = check(directory, ALL)
    if found.verdict in (Verdict.CAPTURED, Verdict.INCOMPLETE):
        with Anchor(tmp_path).open(directory) as artifacts:
            json.dumps([summarize(artifacts), step_times_ms(artifacts), found.details], allow_nan=False)
