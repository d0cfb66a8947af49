"""What limits a brick, told of bricks that are limited by it."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from aorta_collectors.numerics.config import Config
from aorta_collectors.numerics.engine.timeline import Timeline
from aorta_collectors.numerics.profile.bound import COMPUTE, HOST, LAUNCH, MEMORY, Judgement, Work, judged
from aorta_collectors.numerics.profile.bricks import BrickTable
from aorta_collectors.numerics.profile.counting import OperationCount
from aorta_collectors.numerics.profile.roofline import Roofline
from aorta_collectors.numerics.spans.lamport import LamportClock
from tests.numerics.profiled import profiled, roofline

#: 1 GFLOP/s, 100 MB/s: the ridge is at 10 FLOPs a byte. A launch takes a microsecond.
MACHINE = Roofline("a machine", {"float32": 1e9}, 1e8, 1.0, 1, "2026-01-01T00:00:00+00:00")


class TestJudged:
    @pytest.mark.parametrize(
        ("work", "own_s", "expected"),
        [
            (Work(1e9, 1e7, 1, "float32", 1.9), 2.0, Judgement(0.5, COMPUTE)),
            (Work(1e9, 1e9, 1, "float32", 19.0), 20.0, Judgement(0.5, MEMORY)),
            (Work(0, 1e8, 1, "float32", 1.0), 1.0, Judgement(1.0, MEMORY)),
            (Work(0, 1e2, 1000, "float32", 1e-3), 2e-3, Judgement(5e-4, LAUNCH)),
            (Work(0, 1e2, 1, "float32", 1e-5), 1.0, Judgement(1e-6, HOST)),
            (Work(0, 0, 0, None, 0.0), 1.0, Judgement(None, HOST)),
            # A device's operations go on after they were started: how long they took is not known.
            (Work(1e9, 1e7, 1, "float32", None), 2.0, Judgement(0.5, COMPUTE)),
            (Work(1e9, 1e7, 1, "float32", None), 100.0, Judgement(0.01, HOST)),
            # The machine's peak in this dtype is not known.
            (Work(1e9, 1e7, 1, "float64", 1.9), 2.0, Judgement()),
            (Work(1e9, 1e7, 1, "float32", 1.9), 0.0, Judgement()),
        ],
    )
    def test_by_the_numbers(self, work: Work, own_s: float, expected: Judgement) -> None:
        found = judged(work, own_s, own_s, MACHINE)
        assert found.bound == expected.bound
        assert found.efficiency == (None if expected.efficiency is None else pytest.approx(expected.efficiency))

    @given(flops=st.floats(1, 1e12), intensity=st.floats(0.01, 1000))
    def test_the_ridge_point_is_where_memory_ends_and_computing_begins(self, flops: float, intensity: float) -> None:
        work = Work(flops, flops / intensity, 0, "float32", 1.0)
        expected = COMPUTE if intensity > 10 else MEMORY
        if intensity != pytest.approx(10):
            assert judged(work, 1.0, 1.0, MACHINE).bound == expected

    def test_others_that_disturbed_some_calls_do_not_make_it_wait(self) -> None:
        work = Work(1e9, 1e7, 1, "float32", 1.9)
        assert judged(work, 8.0, 2.0, MACHINE) == Judgement(0.125, COMPUTE)

    @pytest.mark.parametrize(("counted_s", "bound"), [(2.0, COMPUTE), (3.7, COMPUTE), (3.9, HOST), (50.0, HOST)])
    def test_others_that_disturbed_all_but_those_that_were_counted_do_not_either(
        self, counted_s: float, bound: str
    ) -> None:
        work = Work(1e9, 1e7, 1, "float32", 1.9, counted_s)
        assert judged(work, 20.0, 20.0, MACHINE) == Judgement(0.05, bound)

    def test_a_step_that_counting_slowed_down_does_not_make_it_wait(self) -> None:
        work = Work(1e9, 1e7, 1, "float32", 1.9, 50.0)
        assert judged(work, 2.0, 2.0, MACHINE) == Judgement(0.5, COMPUTE)


class Sleeper(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        time.sleep(0.02)
        return x.view_as(x)


class Elementwise(nn.Module):
    large = torch.ones(4 << 20)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(4):
            self.large.add_(1.0)
        return x + 1


class Tiny(nn.Module):
    """Short, so that others interrupt few of its calls: half of its time is between operations, where a pause is
    not to be told from waiting.
    """

    def forward(self, x: Tensor) -> Tensor:
        small = x[0, 0]
        for _ in range(100):
            small = small + 1
        return small


def test_planted_bricks() -> None:
    config = Config(profile="deferred")
    model: Any = nn.Sequential(Sleeper(), nn.Linear(768, 768), Elementwise(), Tiny())
    timeline = Timeline(config, LamportClock())
    count = OperationCount(timeline)
    table = BrickTable(config, count.work_of, roofline)
    x = torch.ones(768, 768)
    with profiled(config, [count, table], timeline):
        for _ in range(8):
            model(x)
    rows = {row["layer"]: row for row in table.rows() if row["direction"] == "forward"}
    assert {layer: rows[layer]["bound"] for layer in "0123"} == {"0": HOST, "1": COMPUTE, "2": MEMORY, "3": LAUNCH}
    assert rows["0"]["efficiency"] is None  # it computes nothing
    assert rows["1"]["flops"] == 2 * 768**3
    assert rows["2"]["bytes"] >= 8 * Elementwise.large.nbytes
    assert rows["3"]["operations"] == 100
