"""A planted load in a module of a real model is named by each source that the machine permits (tests/.../loads.py)."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from aorta_collectors.schema_check import first_error
from tests.numerics.profile.escalation.loads import LOADS

_SOURCES = ("perf", "strace", "proc")
_ATTEMPTS = 3  # all of them look at a clock now and then, which other processes on the machine can throw out

Lines = list[dict[str, Any]]
Escalated = dict[tuple[str, str], Lines | None]


def _run(*asked: str) -> Escalated:
    command = [sys.executable, "-m", "tests.numerics.profile.escalation.loads", *asked]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    found = map(json.loads, done.stdout.splitlines())
    return {(line["source"], line["load"]): line["lines"] for line in found}


@pytest.fixture(scope="module")
def escalated() -> Escalated:
    """By source and load, the lines of the module that has the load."""
    return _run(*(f"{source}:{load}" for source in _SOURCES for load in LOADS))


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("source", _SOURCES)
def test_a_planted_load_is_named(escalated: Escalated, source: str, load: str) -> None:
    lines = escalated[source, load]
    if lines is None:
        pytest.skip("this kernel has no ioctl that takes long and changes nothing")
    assert [line["reason"] for line in lines] == ["unstable"]
    breakdown = lines[0]["breakdown"]
    if breakdown is None:
        pytest.skip(" ".join(lines[0]["unavailable"]))
    assert breakdown["source"] == source
    # Of a call that never waits /proc has no trace but that it was in the kernel, and says so.
    expected = "other" if (source, load) == ("proc", "ioctl") else load
    attempts = 1
    while breakdown["dominant"] != expected and attempts < _ATTEMPTS:
        again = _run(f"{source}:{load}")[source, load]
        assert again is not None
        breakdown = again[0]["breakdown"]
        attempts += 1
    assert breakdown["dominant"] == expected, breakdown
    assert source != "proc" or "estimate" in lines[0]["unavailable"][0]


def test_lines_are_to_the_schema(escalated: Escalated) -> None:
    checked = 0
    for lines in filter(None, escalated.values()):
        for line in lines:
            assert first_error("numerics.escalation", {**line, "rank": 0, "pid": 1, "span_id": "0" * 16}) is None
            assert line["brick_us"] >= 11_000
            checked += 1
    assert checked >= len(LOADS)
