"""Metrics of a trial: the largest of its processes, never a sum over ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from aorta_collectors.evidence.directory import Anchor
from aorta_collectors.memory.config import Config
from aorta_collectors.memory.verify.metrics import summarize
from tests.memory.snapshots import MIB
from tests.memory.synthetic import default_points, device, write


def metrics(directory: Path) -> dict[str, Any]:
    with Anchor(directory.parent).open(directory) as artifacts:
        return dict(summarize(artifacts))


def test_all_of_them_are_told(tmp_path: Path) -> None:
    place = write(tmp_path / "memory", ranks=2, steps=5, grows=3 * MIB, devices=[device()])
    assert metrics(place) == {
        "memory_steps": 5,
        "memory_ranks": 2,
        "memory_points": 40,
        "memory_peak_rss_bytes": 515 * MIB,
        "memory_rss_growth_bytes": 4 * 3 * MIB,
        "memory_device_peak_allocated_bytes": 30 * MIB,
        "memory_device_peak_reserved_bytes": 40 * MIB,
        "memory_look_us_p50": 40.0,
    }


def test_without_a_device_or_a_second_step_that_is_left_out(tmp_path: Path) -> None:
    found = metrics(write(tmp_path / "memory", steps=1))
    assert set(found) == {
        "memory_steps",
        "memory_ranks",
        "memory_points",
        "memory_peak_rss_bytes",
        "memory_look_us_p50",
    }


def test_the_rank_that_grew_most_is_told_of(tmp_path: Path) -> None:
    grown = {"after_step": {"seen": 2, "taken": 2, "first": _look(1, 10), "last": _look(2, 90)}}
    shrunk = {"after_step": {"seen": 2, "taken": 2, "first": _look(1, 10), "last": _look(2, 5)}}
    place = write(tmp_path / "memory", ranks=2, by_rank={0: {"points": shrunk}, 1: {"points": grown}})
    assert metrics(place)["memory_rss_growth_bytes"] == 80


def test_the_last_point_of_a_step_is_the_one_that_is_compared(tmp_path: Path) -> None:
    lines = default_points(3, Config())
    for line in lines:
        if line["point"] == "after_step" and line["step"] == 3:
            line["host"] = {**line["host"], "rss": 600 * MIB, "peak_rss": 600 * MIB}
    assert metrics(write(tmp_path / "memory", points=lines))["memory_rss_growth_bytes"] == 100 * MIB


def _look(step: int, rss: int) -> dict[str, int]:
    return {"step": step, "rss": rss, "anonymous": rss}
