"""Growth: whether a step costs the same after 20,000 steps, and a module the same among 3,000 modules."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from pathlib import Path

import torch

from benchmarks.alternate import BARE, alternate
from benchmarks.estimate import Estimate, Samples
from benchmarks.models import stack
from benchmarks.row import Bar, Row
from benchmarks.sizes import Sizes
from benchmarks.small import records_of_a_step
from benchmarks.variants import Ours

_LAYERS = 10
_CHUNK = 50
_CACHES = "thousands of modules do not fit into the caches, which slows the bare program down as well"


def step_rows(sizes: Sizes, directory: Path) -> list[Row]:
    """Row `steps`: the last twentieth of a session's steps against the second one, since the first warms caches up.

    The machine's own changes over that time are divided out: a fixed piece of work that nobody watches is timed
    between every 50 steps.
    """
    trained = stack(_LAYERS)
    ours = Ours(directory / "steps")
    chunks: list[dict[str, float]] = []
    with ours():
        for _ in range(sizes.growth_steps // _CHUNK):
            chunks.append({"armed": _steps(trained.step, sizes.clock), "unwatched": _unwatched(sizes.clock)})
    bare = statistics.median(_steps(trained.step, sizes.clock) for _ in range(10))
    part = max(1, len(chunks) // 20)
    first, last = Samples(chunks[part : 2 * part]), Samples(chunks[-part:])

    def cost(samples: Samples) -> Estimate:
        return samples.ratio("armed", "unwatched")

    value = cost(last).value / cost(first).value
    spread = [cost(last).low / cost(first).high, cost(last).high / cost(first).low]
    numbers: dict[str, float | str] = {
        "steps": sizes.growth_steps,
        "armed us at first": 1e6 * first.median("armed"),
        "armed us at last": 1e6 * last.median("armed"),
        "bare us": 1e6 * bare,
        "unwatched work, last / first": last.median("unwatched") / first.median("unwatched"),
    }
    what = f"armed step at step {sizes.growth_steps:,} / at step {part * _CHUNK:,}"
    return [Row("steps", what, Estimate(value, *spread), Bar(1.1), numbers)]


def _unwatched(clock: Callable[[], float]) -> float:
    """Seconds of small operations on tensors, as a step consists of, outside any module."""
    matrix = torch.eye(8)
    start = clock()
    for _ in range(100):
        matrix = matrix @ matrix
    return clock() - start


def _steps(step: Callable[[], None], clock: Callable[[], float]) -> float:
    """Median seconds of a step among 50."""
    times = []
    for _ in range(_CHUNK):
        start = clock()
        step()
        times.append(clock() - start)
    return statistics.median(times)


def module_rows(sizes: Sizes, directory: Path) -> list[Row]:
    """Row `modules`: what a record costs among the most modules to the fewest, over the same of a bare layer."""
    found: dict[int, tuple[Samples, int]] = {}
    for layers in sizes.growth_modules:
        trained = stack(layers)
        count = records_of_a_step(trained, directory / "count")
        found[layers] = (
            alternate(
                trained.step,
                {"ours": Ours(directory / "modules")},
                seconds=sizes.growth_seconds / len(sizes.growth_modules),
                clock=sizes.clock,
                timed=max(sizes.timed, min(_CHUNK, 3000 // layers)),
            ),
            count,
        )
    fewest, most = min(found), max(found)
    record_us = {layers: samples.added("ours", BARE).scaled(1e6 / count) for layers, (samples, count) in found.items()}
    bare_us = {layers: 1e6 * samples.median(BARE) / layers for layers, (samples, _) in found.items()}
    grows = Estimate(
        record_us[most].value / record_us[fewest].value,
        record_us[most].low / record_us[fewest].high,
        record_us[most].high / record_us[fewest].low,
    )
    numbers: dict[str, float | str] = {f"us a record of {layers}": us.value for layers, us in record_us.items()}
    numbers |= {f"bare us a layer of {layers}": us for layers, us in bare_us.items()}
    bare_grows = bare_us[most] / bare_us[fewest]
    numbers["a record, most / fewest"], numbers["a bare layer, most / fewest"] = grows.value, bare_grows
    numbers["added time grows as modules to the power"] = _power({n: us.value * n for n, us in record_us.items()})
    what = f"growth of a record's cost, {most} modules / {fewest}, to a bare layer's"
    return [Row("modules", what, grows.scaled(1 / bare_grows), Bar(1.25), numbers, note=_CACHES)]


def _power(times: dict[int, float]) -> float:
    """Slope of log time over log number, by least squares; NaN where a time is not positive."""
    if min(times.values()) <= 0 or len(times) < 2:
        return math.nan
    x, y = [math.log(number) for number in times], [math.log(taken) for taken in times.values()]
    return statistics.linear_regression(x, y).slope
