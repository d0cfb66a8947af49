"""The numerics collector on the same transformer, beside torch.profiler: bare, none, basic, layer and profile."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Set
from pathlib import Path
from typing import Any

import orjson
import torch

from aorta_collectors.numerics.config import Config
from aorta_collectors.numerics.session import Session
from benchmarks.alternate import BARE, Variant, alternate
from benchmarks.models import transformer
from benchmarks.row import Bar, Row
from benchmarks.sizes import Sizes

_OFF: dict[str, Any] = {"step_metrics": "off"}

#: Key of a row -> what it says, options, bar.
_ARMED: dict[str, tuple[str, dict[str, Any], Bar | None]] = {
    "numerics-none": ("trace: none, nothing asked for", {"trace": "none", **_OFF}, Bar(1.005)),
    "numerics-basic": ("trace: basic", {"trace": "basic"}, Bar(1.02)),
    "numerics-layer": ("trace: layer", {"trace": "layer"}, Bar(1.08)),
    "numerics-profile": (
        "profile: deferred, no closer looks",
        {"profile": "deferred", "escalate": "off"},
        None,
    ),
}
PROFILER = "torch-profiler"
KEYS = (*_ARMED, PROFILER)


class Armed:
    """A session of numerics, a new one for each block, as a program has it that is started armed."""

    def __init__(self, directory: Path, options: dict[str, Any]) -> None:
        self._directory = directory
        self._config = Config.of(options)

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        session = Session(self._config, lambda: self._directory)
        session.arm()
        try:
            yield
        finally:
            session.close()
        if self._config.asks_for_nothing:
            return
        summary: dict[str, Any] = orjson.loads((self._directory / "summary_rank0.json").read_bytes())
        read = summary.get("tensors_read", 0) if self._config.reads_layers else 1
        if summary["hook_errors"] or summary["write_error"] or not summary["watched_count"] or not read:
            told = {
                name: summary.get(name) for name in ("hook_errors", "first_hook_error", "write_error", "watched_count")
            }
            raise RuntimeError(f"the engine did not do its work: {told}, {read} tensors read")


@contextlib.contextmanager
def profiled() -> Iterator[None]:
    """torch.profiler on the processor, with its default settings."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        yield


def tracing_rows(wanted: Set[str], sizes: Sizes, directory: Path) -> list[Row]:
    """One row a variant, all from one alternation."""
    trained = transformer(sizes.width, sizes.layers)
    variants: dict[str, Variant] = {key: Armed(directory / key, _ARMED[key][1]) for key in _ARMED if key in wanted}
    if PROFILER in wanted:
        variants[PROFILER] = profiled
    samples = alternate(trained.step, variants, seconds=sizes.transformer_seconds, clock=sizes.clock, timed=sizes.timed)
    rows = []
    for key in variants:
        what, _, bar = _ARMED.get(key, ("torch.profiler, CPU", {}, None))
        numbers: dict[str, float | str] = {
            "bare ms": 1e3 * samples.median(BARE),
            "armed ms": 1e3 * samples.median(key),
            "added ms": 1e3 * samples.added(key, BARE).value,
            "median of the rounds' ratios": samples.paired(key, BARE),
            "from": samples.told,
        }
        rows.append(
            Row(key, f"transformer {sizes.width}, {what}: armed / bare", samples.ratio(key, BARE), bar, numbers)
        )
    return rows
