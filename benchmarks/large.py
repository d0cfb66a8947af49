"""The transformer: what observing adds to a step that computes something."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Set
from pathlib import Path

import torch

from benchmarks.alternate import BARE, Variant, alternate
from benchmarks.estimate import Estimate, floor
from benchmarks.models import transformer
from benchmarks.row import Bar, Row
from benchmarks.sizes import Sizes
from benchmarks.stock import Stock
from benchmarks.variants import Limit, Ours

ALL_CHANNELS = "act,input,igrad,weight,bias,wgrad,bgrad"

#: Key of a row -> what it says, NANLOG_* variables, bar.
_ARMED: dict[str, tuple[str, dict[str, str], Bar | None]] = {
    "default": ("default channels: armed / bare", {}, Bar(1.04)),
    "all": ("all seven channels: armed / bare", {"NANLOG_CHANNELS": ALL_CHANNELS}, Bar(1.10)),
    "origin": ("NANLOG_ORIGIN=1 on every module: armed / bare", {"NANLOG_ORIGIN": "1"}, Bar(1.15)),
    "runup": ("run-up of 10 steps kept: armed / bare", {"NANLOG_PRE_CONTEXT": "10"}, None),
}
KEYS = (*_ARMED, "stock", "share")
_TOLD = "as the summaries tell it, without what torch takes to call a hook; from the least to the most of the sessions"


def transformer_rows(wanted: Set[str], sizes: Sizes, directory: Path) -> list[Row]:
    """Rows `default`, `all`, `origin`, `runup`, `stock` and `share`, from one alternation of all that they need."""
    trained = transformer(sizes.width, sizes.layers)
    needed = set(wanted) | ({"default"} if wanted & {"stock", "share"} else set())
    ours = {key: Ours(directory / key, _ARMED[key][1]) for key in _ARMED if key in needed}
    variants: dict[str, Variant] = dict(ours)
    if "stock" in wanted:
        variants["stock"] = Stock(trained.model, directory / "stock")
    samples = alternate(trained.step, variants, seconds=sizes.transformer_seconds, clock=sizes.clock, timed=sizes.timed)
    bare_ms = 1e3 * samples.median(BARE)
    rows = []
    for key in ours:
        if key in wanted:
            what, _, bar = _ARMED[key]
            numbers: dict[str, float | str] = {
                "bare ms": bare_ms,
                "armed ms": 1e3 * samples.median(key),
                "added ms": 1e3 * samples.added(key, BARE).value,
                "median of the rounds' ratios": samples.paired(key, BARE),
                "from": samples.told,
            }
            rows.append(Row(key, f"transformer {sizes.width}, {what}", samples.ratio(key, BARE), bar, numbers))
    if "stock" in wanted:
        numbers = {
            "bare ms": bare_ms,
            "stock added ms": 1e3 * samples.added("stock", BARE).value,
            "ours added ms": 1e3 * samples.added("default", BARE).value,
            "stock / bare": samples.ratio("stock", BARE).value,
            "from": samples.told,
        }
        value = samples.ratio_of_added("stock", "default", BARE)
        what = f"transformer {sizes.width}, default channels: added time, stock / ours"
        rows.append(Row("stock", what, value, Bar(20, at_most=False), numbers))
    if "share" in wanted and ours["default"].shares:
        shares = sorted(ours["default"].shares)
        told = Estimate(statistics.median(shares), shares[0], shares[-1]).scaled(100)
        measured = samples.estimate(lambda median: 1 - median(BARE) / median("default")).scaled(100)
        numbers = {"measured here %": measured.value, "its interval": f"{measured.low:.3g} to {measured.high:.3g}"}
        what = "share of the armed step that the summary tells, default channels"
        rows.append(Row("share", what, told, None, numbers, unit="%"))
    return rows


def limit_rows(sizes: Sizes, directory: Path) -> list[Row]:
    """Row `limit`: added time against one pass of torch.aminmax over the same tensors."""
    trained = transformer(sizes.wide, sizes.layers)
    ours, limit = (
        Ours(directory / "limit", {"NANLOG_SAMPLE_EVERY": "1"}, counts=True),
        Limit(trained.model, sizes.clock),
    )
    with ours():
        trained.step()
    with limit():
        trained.step()
    if ours.counted != len(limit.looked_at):
        raise RuntimeError(f"the engine looked at {ours.counted} tensors, the limit at {len(limit.looked_at)}")
    limit.seconds.clear()
    armed = Ours(directory / "limit")
    variants: dict[str, Variant] = {"ours": armed, "limit": limit}
    samples = alternate(trained.step, variants, seconds=sizes.limit_seconds, clock=sizes.clock, timed=sizes.timed)
    alone, cold = statistics.median(limit.seconds), _cold(limit.looked_at, sizes.clock)
    bare = samples.median(BARE)
    added = samples.added("ours", BARE)
    in_place = samples.ratio_of_added("ours", "limit", BARE)
    numbers: dict[str, float | str] = {
        "bare ms": 1e3 * bare,
        "ours added ms": 1e3 * added.value,
        "hooks with aminmax added ms": 1e3 * floor(samples.median("limit") - bare, bare),
        "aminmax alone in place ms": 1e3 * alone,
        "aminmax cold ms": 1e3 * cold,
        "tensors": len(limit.looked_at),
        "MB": sum(shape.numel() * dtype.itemsize for shape, dtype in limit.looked_at) / 1e6,
        "from": samples.told,
    }
    what = f"transformer {sizes.wide}, default channels: added time / aminmax"
    told = _told(armed, alone)
    return [
        Row("limit", f"{what} in place", added.scaled(1 / alone), Bar(1.6), numbers),
        Row(
            "limit",
            f"transformer {sizes.wide}: time in hooks and drains / aminmax in place",
            told,
            Bar(1.6),
            {},
            note=_TOLD,
        ),
        Row("limit", f"{what} in bare hooks", in_place, None, {}, note="of the same blocks"),
        Row("limit", f"{what}, cold", added.scaled(1 / cold), None, {}, note="of the same blocks"),
    ]


def _told(armed: Ours, alone: float) -> Estimate:
    """Time in hooks and drains that the sessions told, over that of aminmax; least and most of them as the interval."""
    told = sorted(armed.told_ms)
    return Estimate(statistics.median(told), told[0], told[-1]).scaled(1e-3 / alone)


def _cold(looked_at: list[tuple[torch.Size, torch.dtype]], clock: Callable[[], float]) -> float:
    """Median seconds of one aminmax over tensors of these shapes, one after the other, so that none is in a cache."""
    tensors = [torch.randn(shape).to(dtype) for shape, dtype in looked_at]
    times = []
    for _ in range(20):
        start = clock()
        for tensor in tensors:
            torch.aminmax(tensor)
        times.append(clock() - start)
    return statistics.median(times)
