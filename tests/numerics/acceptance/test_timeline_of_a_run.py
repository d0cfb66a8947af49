"""The timeline that --trace-output writes is one that ui.perfetto.dev and chrome://tracing can draw."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import pytest

from tests.numerics.acceptance.running import armed
from tests.numerics.left import Left

PROGRAM = """
import threading
import torch
from aorta_collectors.numerics import step
from tests.numerics.models import gpt2
from torch.utils.data import DataLoader

torch.manual_seed(0)
torch.set_num_threads(1)
sample = gpt2()
optimizer = torch.optim.AdamW(sample.model.parameters())
for ids in DataLoader(torch.randint(2, 64, (24, 8)), batch_size=2):
    optimizer.zero_grad()
    loss = sample.model(input_ids=ids, labels=ids).loss
    loss.backward()
    with step("CLIP"):
        torch.nn.utils.clip_grad_norm_(sample.model.parameters(), 1.0)
    optimizer.step()


def evaluate():
    with torch.no_grad(), step("EVALUATE"):
        sample.call()


others = [threading.Thread(target=evaluate) for _ in range(2)]
for other in others:
    other.start()
for other in others:
    other.join()
"""
STEPS = 12
PHASES_OF_EVENTS = {"M", "X", "C", "s", "t", "f"}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[dict[str, Any]], Left]:
    directory = tmp_path_factory.mktemp("timeline")
    options = ["--trace-level", "layer", "--profile", "deferred", "--trace-output", "trace.json"]
    ran, left = armed(directory, PROGRAM, *options)
    ran.ok()
    assert left.summary["hook_errors"] == 0, left.summary["first_hook_error"]
    content = json.loads((directory / "trace.json").read_text())
    events: list[dict[str, Any]] = content["traceEvents"]
    return events, left


def test_every_event_has_what_its_kind_needs(run: Any) -> None:
    events, _ = run
    assert {event["ph"] for event in events} <= PHASES_OF_EVENTS
    for event in events:
        assert isinstance(event["name"], str)
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        if event["ph"] != "M":
            assert event["ts"] >= 0
        if event["ph"] == "X":
            assert event["dur"] >= 0
    tracks = {(event["pid"], event["tid"]) for event in events if event["ph"] == "X"}
    named = {(e["pid"], e["tid"]) for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    assert tracks <= named


def test_slices_of_a_track_lie_within_one_another(run: Any) -> None:
    events, _ = run
    tracks = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            tracks[event["pid"], event["tid"]].append(event)
    assert len(tracks) >= 3  # the program's thread, and two others
    for track in tracks.values():
        open_until: list[float] = []
        for event in sorted(track, key=lambda event: (event["ts"], -event["dur"])):
            while open_until and open_until[-1] <= event["ts"] + 0.002:
                open_until.pop()
            ending = event["ts"] + event["dur"]
            assert not open_until or ending <= open_until[-1] + 0.002, event
            open_until.append(ending)


def test_it_shows_each_span(run: Any) -> None:
    events, left = run
    slices = [event for event in events if event["ph"] == "X"]
    spans = left.lines("spans")
    assert {event["args"]["span_id"] for event in slices} == {span["span_id"] for span in spans}
    assert sum(event["name"] == "CLIP" for event in slices) == STEPS
    assert sum(event["name"] == "EVALUATE" for event in slices) == 2
    assert {event["name"] for event in slices if event["cat"] == "step"} >= {f"step {n}" for n in range(1, STEPS + 1)}


def test_what_the_program_names_is_where_it_was(run: Any) -> None:
    _, left = run
    spans = left.lines("spans")
    by_id = {span["span_id"]: span for span in spans}
    for span in spans:
        if span["name"] == "CLIP":
            assert span["kind"] == "user"
            assert by_id[span["parent_span_id"]]["kind"] == "step"
        if span["name"] == "EVALUATE":
            inside = [other for other in spans if other["parent_span_id"] == span["span_id"]]
            assert [other["layer"] for other in inside] == ["(root)"]


def test_counters_follow_the_steps(run: Any) -> None:
    events, left = run
    lines = left.lines("steps")
    counters = defaultdict(list)
    for event in events:
        if event["ph"] == "C":
            counters[event["name"]].append(event["args"][event["name"]])
    assert counters["loss"] == [line["loss"] for line in lines if line["loss"] is not None]
    assert len(counters["grad_norm"]) == STEPS
    assert len(counters["tokens_per_s"]) >= STEPS
