"""The table of bricks: durations are those that planted code measured of itself, and go to the right module."""

from __future__ import annotations

import gc
import statistics
import time
import weakref
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import validate
from torch import Tensor, nn

from aorta_collectors.numerics.brick import Brick, Timing
from aorta_collectors.numerics.config import Config
from aorta_collectors.numerics.engine.timeline import Timeline
from aorta_collectors.numerics.part import StepTrace
from aorta_collectors.numerics.profile.bound import Work
from aorta_collectors.numerics.profile.brick_times import BrickTimes, with_self_times
from aorta_collectors.numerics.profile.bricks import BrickTable
from aorta_collectors.numerics.profile.roofline import Roofline
from aorta_collectors.numerics.spans.lamport import LamportClock
from aorta_collectors.schema_check import load_schema
from tests.numerics.profiled import profiled

CONFIG = Config(profile="deferred")
SLEEP_S = 0.02
CALLS = 6
MACHINE = Roofline("a machine", {"float32": 1e9}, 1e8, 1.0, 1, "2026-01-01T00:00:00+00:00")


def brick(layer: str, number: int = 0) -> Brick:
    return Brick(weakref.ref(nn.Identity()), layer, "Linear", "", None, True, False, None, number)


def timing(of: Brick, start: int, end: int, direction: str = "forward", overhead: int = 0) -> Timing:
    return Timing(of, direction, start, end, overhead)


class TestTimes:
    @given(st.lists(st.floats(1e-6, 10.0), min_size=2, max_size=200))
    def test_they_are_numpys(self, seconds: list[float]) -> None:
        times = BrickTimes()
        for value in seconds:
            times.add(value, value / 2)
        assert times.calls == len(seconds)
        assert times.total_s == pytest.approx(sum(seconds))
        assert times.self_s == pytest.approx(sum(seconds) / 2)
        assert times.least_self_s == min(seconds) / 2
        assert times.mean_s == pytest.approx(np.mean(seconds))
        assert times.cv == pytest.approx(np.std(seconds, ddof=1) / np.mean(seconds), rel=1e-6, abs=1e-9)
        assert times.quantile(0.5) == pytest.approx(np.quantile(seconds, 0.5), rel=0.05)

    def test_of_nothing(self) -> None:
        times = BrickTimes()
        assert (times.mean_s, times.cv, times.quantile(0.5)) == (None, None, None)

    def test_a_modules_own_time_is_without_that_of_its_parts(self) -> None:
        root, block, leaf, other = (brick(name) for name in ("(root)", "block", "block.leaf", "other"))
        timings = [
            timing(leaf, 20, 50, overhead=5),
            timing(block, 10, 60, overhead=10),
            timing(other, 60, 80),
            timing(root, 0, 100, overhead=20),
            timing(leaf, 110, 130, "backward"),
            timing(block, 110, 140, "backward"),  # begins with the same gradient
        ]
        found = [
            (timing.brick.layer, round(own * 1e9), round(alone * 1e9))
            for timing, own, alone in with_self_times(timings)
        ]
        assert found == [
            ("block.leaf", 25, 25),
            ("block", 40, 15),
            ("other", 20, 20),
            ("(root)", 80, 20),
            ("block.leaf", 20, 20),
            ("block", 30, 10),
        ]


class TestTable:
    def test_of_ever_new_models_those_are_kept_that_live_or_took_longest(self) -> None:
        table = BrickTable(CONFIG)
        module = nn.Identity()
        living = Brick(weakref.ref(module), "living", "Identity", "", None, True, False, None, 0)
        table.step_ended(StepTrace(1, timings=[timing(living, 0, 1)]))
        seen = []
        for number in range(1, 13):
            gone = [brick(f"{number}.{index}", number) for index in range(1000)]
            seen += [weakref.ref(each) for each in gone]
            took = 10**6 if number == 2 else 1000
            table.step_ended(StepTrace(2, timings=[timing(each, n, n + took) for n, each in enumerate(gone)]))
        del gone
        gc.collect()
        assert sum(each() is not None for each in seen) <= 4000
        layers = {row["layer"] for row in table.rows()}
        assert {f"2.{index}" for index in range(1000)} < layers
        assert next(reading.layer for reading in table.readings(1, 0.0, 0.0)) == "living"

    def test_rows_come_in_the_order_of_their_first_call_and_fit_the_schema(self) -> None:
        root, leaf = brick("(root)", 0), brick("leaf", 1)
        table = BrickTable(CONFIG, lambda layer, direction: Work(2e3, 1e3, 1, "float32", 1e-6), lambda: MACHINE)
        timings = [timing(leaf, 2000, 4000), timing(root, 0, 9000), timing(leaf, 9500, 9900, "backward")]
        table.step_ended(StepTrace(1, timings=timings))
        rows = table.fields()["bricks"]
        assert [(row["layer"], row["direction"]) for row in rows] == [
            ("(root)", "forward"),
            ("leaf", "forward"),
            ("leaf", "backward"),
        ]
        validate(rows, load_schema("numerics.summary")["properties"]["bricks"])
        # 2000 FLOPs take 2 us at best, 1000 bytes 10 us, and it took 2.
        assert rows[1]["efficiency"] == pytest.approx(5.0)
        assert rows[0]["self_us"] == pytest.approx(7.0)

    def test_steps_that_were_counted_are_left_out_where_there_are_others(self) -> None:
        leaf = brick("leaf")
        table = BrickTable(CONFIG)
        table.step_ended(StepTrace(1, timings=[timing(leaf, 0, 50_000)], is_counted=True))
        assert [row["mean_us"] for row in table.rows()] == [50.0]
        table.step_ended(StepTrace(2, timings=[timing(leaf, 0, 2_000)]))
        (row,) = table.rows()
        assert (row["calls"], row["mean_us"]) == (1, pytest.approx(2.0))

    def test_the_first_steps_do_not_count_for_how_much_a_time_varies(self) -> None:
        leaf, table = brick("leaf"), BrickTable(CONFIG)
        for step, micros in enumerate([900, 30, 20, 10, 10, 10], 1):
            assert [row["cv"] for row in table.rows()] == [None] * (step > 1)
            table.step_ended(StepTrace(step, timings=[timing(leaf, 0, micros * 1000)]))
            if step > 4:
                break
        (row,) = table.rows()
        assert row["cv"] == 0.0
        assert row["mean_us"] == pytest.approx(194.0)

    def test_numbers_are_rounded(self) -> None:
        leaf = brick("leaf")
        table = BrickTable(CONFIG, lambda *_: Work(2e3 / 3, 1e3 / 3, 1, "float32", 1e-6), lambda: MACHINE)
        for step in range(6):
            table.step_ended(StepTrace(step, timings=[timing(leaf, 0, 100_000 // (step + 3))]))
        (row,) = table.rows()
        digits = {name: len(str(value).partition(".")[2]) for name, value in row.items() if isinstance(value, float)}
        assert {"total_us", "self_us", "mean_us", "p50_us", "p95_us", "p99_us", "cv", "flops", "bytes"} < set(digits)
        assert max(count for name, count in digits.items() if name not in ("cv", "efficiency")) == 3
        assert digits["cv"] == digits["efficiency"] == 6

    def test_what_escalation_asks_for_is_what_the_rows_say(self) -> None:
        long, short, seldom = brick("long", 0), brick("short", 1), brick("seldom", 2)
        table = BrickTable(CONFIG, lambda *_: Work(2e3, 1e3, 1, "float32", 1e-6), lambda: MACHINE)
        for step in range(5):
            timings = [timing(long, 0, 60_000 + step), timing(short, 60_000, 70_000)]
            table.step_ended(StepTrace(step, timings=timings + [timing(seldom, 80_000, 900_000)][step:]))
        table.step_ended(StepTrace(9, timings=[timing(brick("counted", 3), 0, 90_000)] * 9, is_counted=True))
        (reading,) = table.readings(5, 50.0, 0.0)
        row = next(row for row in table.rows() if row["layer"] == "long")
        assert reading._asdict() == {name: pytest.approx(row[name], abs=1e-3) for name in reading._fields}
        assert [reading.layer for reading in table.readings(1, 0.0, 301.0)] == ["seldom"]
        assert [reading.layer for reading in table.readings(5, 10.0, 0.0)] == ["long", "short"]

    def test_of_very_many_the_longest_are_kept(self) -> None:
        table = BrickTable(CONFIG)
        bricks = [brick(f"layers.{number}", number) for number in range(2100)]
        timings = [timing(of, of.number * 10_000, of.number * 10_000 + 1 + of.number) for of in bricks]
        table.step_ended(StepTrace(1, timings=timings))
        rows = table.rows()
        assert len(rows) == 2000
        assert [row["layer"] for row in rows[:2]] == ["layers.100", "layers.101"]

    def test_what_a_device_does_later_is_not_judged_by_the_time_of_its_launch(self) -> None:
        leaf = brick("leaf")
        on_device = Work(2e3, 1e3, 1, "float32", None)
        for profile, is_judged in (("deferred", False), ("immediate", True)):
            table = BrickTable(Config(profile=profile), lambda *_: on_device, lambda: MACHINE)
            table.step_ended(StepTrace(1, timings=[timing(leaf, 0, 2_000)]))
            (row,) = table.rows()
            assert (row["efficiency"] is not None) is is_judged
            assert row["flops"] == 2e3


class Measured(torch.autograd.Function):
    """Calls a function in each direction, and writes down how long that took."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, plant: Planted) -> Tensor:
        ctx.plant = plant
        began = time.perf_counter()
        plant.work()
        plant.took["forward"].append(time.perf_counter() - began)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        began = time.perf_counter()
        ctx.plant.work()
        ctx.plant.took["backward"].append(time.perf_counter() - began)
        return grads[0].clone(), None


class Planted(nn.Module):
    """
    Attributes:
        took: Seconds of each call by direction, as it measured of itself.
    """

    def __init__(self) -> None:
        super().__init__()
        self.took: dict[str, list[float]] = {"forward": [], "backward": []}

    def work(self) -> None:
        raise NotImplementedError

    def forward(self, x: Tensor) -> Any:
        return Measured.apply(x, self)


class Sleeper(Planted):
    def work(self) -> None:
        time.sleep(SLEEP_S)


class Multiplier(Planted):
    matrix = torch.ones(1100, 1100)

    def work(self) -> None:
        self.matrix @ self.matrix


class TestPlanted:
    @pytest.mark.parametrize("trace", ["none", "basic", "layer"])
    def test_durations_go_to_the_brick_that_took_them(self, trace: str) -> None:
        config = Config(trace=trace, profile="deferred")
        model = nn.Sequential(
            nn.Linear(8, 8),
            nn.Sequential(nn.ReLU(), Sleeper(), nn.Linear(8, 8)),
            nn.Sequential(Multiplier(), nn.Tanh()),
            nn.Linear(8, 1),
        )
        planted = {"1.1": model[1][1], "2.0": model[2][0]}
        table = BrickTable(config)
        x = torch.ones(4, 8)
        with profiled(config, [table], Timeline(config, LamportClock())) as steps:
            for _ in range(CALLS):
                model(x).sum().backward()
        assert len(steps.traces) == CALLS
        rows = {(row["layer"], row["direction"]): row for row in table.rows()}
        for layer, plant in planted.items():
            for direction in ("forward", "backward"):
                row, took = rows[layer, direction], plant.took[direction]
                own = [
                    timing.own_ns * 1e-9
                    for trace in steps.traces
                    for timing in trace.timings
                    if (timing.brick.layer, timing.direction) == (layer, direction)
                ]
                # Another process may come between the two clocks in one call or another, but not in most.
                ratios = [mine / theirs for mine, theirs in zip(own, took, strict=True)]
                assert statistics.median(ratios) == pytest.approx(1.0, abs=0.05), (layer, direction)
                assert min(ratios) >= 0.999
                assert row["calls"] == CALLS
                assert row["total_us"] == pytest.approx(sum(own) * 1e6)
                assert row["self_us"] == pytest.approx(sum(own) * 1e6)
                # What encloses it has it in all, and not in its own.
                holder = rows[layer.partition(".")[0], direction]
                assert holder["total_us"] >= sum(took) * 1e6
                assert holder["self_us"] < 0.5 * sum(took) * 1e6
