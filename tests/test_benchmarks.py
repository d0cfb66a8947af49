"""The benchmarks run, and print every bar: what they measure is looked at, never how long it took."""

from __future__ import annotations

import json
import shutil
import statistics
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from aorta_collectors.api import Expected, Verdict
from aorta_collectors.evidence.directory import Anchor
from aorta_collectors.layer_numerics.collector import LayerNumerics
from benchmarks import gpu, reading
from benchmarks.alternate import BARE
from benchmarks.captures import OPTIONS, Template, make
from benchmarks.estimate import Estimate, Samples
from benchmarks.models import stack, transformer
from benchmarks.overhead import KEYS
from benchmarks.row import Bar, Row
from benchmarks.sizes import TINY
from benchmarks.stock import Stock
from benchmarks.variants import Limit
from tests.support import BIN, PYTHON, ROOT, records, run

SCRIPT = str(ROOT / "benchmarks" / "overhead.py")
READING = str(ROOT / "benchmarks" / "reading.py")

#: Every bar of the table, by row. The limit has three further readings; rows of a GPU are there only with one.
BARS = {
    "numerics-none": ["<= 1.005"],
    "numerics-basic": ["<= 1.02"],
    "numerics-layer": ["<= 1.08"],
    "numerics-layer-every": [None],
    "numerics-profile": [None],
    "torch-profiler": [None],
    "tensors-digest": [None, "<= 1.75"],
    "tensors-values": [None, None],
    "memory-points": [None],
    "default": ["<= 1.04"],
    "all": ["<= 1.1"],
    "origin": ["<= 1.15"],
    "runup": [None],
    "stock": [">= 20"],
    "share": [None],
    "limit": ["<= 1.6", "<= 1.6", None, None],
    "record": [">= 8"],
    "write": [">= 10"],
    "steps": ["<= 1.1"],
    "modules": ["<= 1.25"],
    "start": ["<= 50"],
}


def test_every_bar_is_printed_with_its_verdict(tmp_path: Path) -> None:
    ran = run([PYTHON, SCRIPT, "--tiny", "--cpu", "--json", "rows.json"], tmp_path, timeout=170).ok()
    rows: list[dict[str, Any]] = json.loads((tmp_path / "rows.json").read_text())
    found: dict[str, list[str | None]] = {}
    for row in rows:
        found.setdefault(row["key"], []).append(row["bar"])
        assert row["what"] in ran.out
        assert (row["met"] is None) == (row["bar"] is None)
        low, high = row["interval"]
        assert low <= high
    assert {key: bars for key, bars in found.items() if key != "gpu"} == BARS
    assert set(KEYS) == {*BARS, *gpu.KEYS}
    verdicts = [line.split()[-1] for line in ran.out.splitlines() if line.split()[-1:] in (["met"], ["MISSED"])]
    assert verdicts.count("MISSED") == sum(row["met"] is False for row in rows)
    assert verdicts.count("met") == sum(row["met"] is True for row in rows)


def test_only_some_rows(tmp_path: Path) -> None:
    ran = run([PYTHON, SCRIPT, "--tiny", "--only", "steps"], tmp_path).ok()
    assert "1 bars met" in ran.out
    refused = run([PYTHON, SCRIPT, "--only", "steps,nothing"], tmp_path)
    assert refused.code == 2
    assert "no such row: nothing" in refused.err


#: Every row of the reading benchmark, by key, with its bar.
READING_BARS = {
    "first-bad": [">= 5", ">= 5", ">= 5", None],
    "compare": [">= 5"],
    "limit": [None, None, None],
    **{key: [None] for key in ("trajectory", "layers", "query", "overlap", "report", "export")},
    "memory": ["<= 1000"],
}


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
def test_reading_is_measured_against_jq_which_gives_the_same_answers(tmp_path: Path) -> None:
    ran = run([PYTHON, READING, "--records", "1000", "--rounds", "1", "--json", "rows.json"], tmp_path).ok()
    rows: list[dict[str, Any]] = json.loads((tmp_path / "rows.json").read_text())
    found: dict[str, list[str | None]] = {}
    for row in rows:
        found.setdefault(row["key"], []).append(row["bar"])
        assert row["value"] > 0
        assert row["what"] in ran.out
    assert found == READING_BARS
    assert set(reading.KEYS) == set(READING_BARS)
    for row in rows[:4]:
        assert row["value"] == pytest.approx(row["numbers"]["jq_s"] / row["numbers"]["ours_s"])
        assert "jq -c" in row["note"]
    assert rows[-1]["value"] == max(value for name, value in rows[-1]["numbers"].items() if name.endswith("_mb"))


def test_memory_is_measured_on_a_capture_of_any_size_without_jq(tmp_path: Path) -> None:
    words = ["--gib", "0.002", "--rounds", "1", "--only", "query,memory"]
    ran = run([PYTHON, READING, *words], tmp_path, {"PATH": str(BIN)}).ok()
    assert ran.out.splitlines()[-1] == "1 of 1 bars met"
    refused = run([PYTHON, READING, "--only", "nothing"], tmp_path)
    assert (refused.code, "no such row: nothing" in refused.err) == (2, True)


def test_captures_are_of_the_records_asked_for_and_go_bad_where_they_are_to(tmp_path: Path) -> None:
    template = Template.of_a_run()
    good = make(tmp_path / "good", template, 1000, bad_from=None)
    bad = make(tmp_path / "bad", template, 4000, bad_from=0.5, ranks=2)
    assert (good / "layers_rank0.jsonl").read_bytes().count(b"\n") == 1000
    assert not any(line["bad"] for line in records(good / "layers_rank0.jsonl"))
    assert not any(line["bad"] for line in records(bad / "layers_rank0.jsonl"))
    steps = {line["step"]: line["bad"] for line in records(bad / "layers_rank1.jsonl")}
    assert [step for step, is_bad in steps.items() if is_bad] == list(range(11, 21))
    collector = LayerNumerics()
    expected = Expected(collector.recall(OPTIONS), frozenset({template.summary["run_id"]}))
    with Anchor(tmp_path).open(bad) as artifacts:
        found = collector.verify(artifacts, expected)
    assert found.verdict is Verdict.CAPTURED, found.reason


def test_the_stock_logger_is_put_on_and_taken_off(tmp_path: Path) -> None:
    """Between its blocks nothing of it is left on the model, and within one it sees every layer."""
    trained = stack(3)
    stock = Stock(trained.model, tmp_path, {"NANLOG_SAMPLE_EVERY": "1"})
    for expected in (0, 5, 10):  # of three outputs and two gradients; the first input needs none
        trained.step()
        assert stock.counted == expected
        assert not any(module._forward_hooks or module._backward_hooks for module in trained.model.modules())
        assert not any(module._forward_pre_hooks for module in trained.model.modules())
        with stock():
            trained.step()


def test_the_limit_looks_at_what_is_watched_and_at_no_more() -> None:
    trained = transformer(TINY.wide, 1)
    limit = Limit(trained.model, lambda: 0.0)
    with limit():
        trained.step()
    trained.step()
    linears = [module for module in trained.model.modules() if isinstance(module, torch.nn.Linear)]
    outputs = sorted(linear.out_features for linear in linears)
    gradients = sorted(linear.in_features for linear in linears)
    seen = sorted(shape[-1] for shape, _ in limit.looked_at)
    assert seen == sorted(outputs + gradients)


def test_bars() -> None:
    assert Bar(1.04).met(1.04)
    assert not Bar(1.04).met(1.05)
    assert Bar(20, at_most=False).met(20)
    assert not Bar(20, at_most=False).met(19.9)
    missed = Row("key", "title", Estimate(2.0, 1.9, 2.1), Bar(1.0), {"ms": 3.0})
    assert missed.met is False
    assert missed.text().splitlines()[0].split() == ["title", "2", "<=", "1", "MISSED"]


_seconds = st.floats(1e-6, 10)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(_seconds, _seconds), min_size=1, max_size=9))
def test_estimates_are_of_medians_and_lie_in_their_interval(taken: list[tuple[float, float]]) -> None:
    samples = Samples([{BARE: bare, "armed": armed} for bare, armed in taken])
    bare, armed = (statistics.median(pair[side] for pair in taken) for side in (0, 1))
    ratio, added = samples.ratio("armed", BARE), samples.added("armed", BARE)
    assert ratio.value == pytest.approx(armed / bare)
    assert added.value == pytest.approx(armed - bare)
    lowest = min(pair[1] for pair in taken) / max(pair[0] for pair in taken)
    highest = max(pair[1] for pair in taken) / min(pair[0] for pair in taken)
    assert lowest * (1 - 1e-12) <= ratio.low <= ratio.high <= highest * (1 + 1e-12)
    assert added.low <= added.high


def test_a_constant_difference_has_no_spread() -> None:
    samples = Samples([{BARE: 1.0, "armed": 1.5}] * 5)
    assert samples.ratio("armed", BARE) == Estimate(1.5, 1.5, 1.5)
    assert samples.ratio_of_added("armed", "armed", BARE) == Estimate(1.0, 1.0, 1.0)
