"""The numerics collector on the same transformer, beside torch.profiler: bare, none, basic, layer and profile.

With trace: layer one step in `stats_every` takes longer than the others. A block of it has as many steps, of which the
mean counts: what the statistics cost comes in with the share that it has.
"""

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
from benchmarks.estimate import Samples
from benchmarks.models import transformer
from benchmarks.row import Bar, Row
from benchmarks.sizes import Sizes

_OFF: dict[str, Any] = {"step_metrics": "off"}

#: Key of a row -> what it says, options, bar.
_ARMED: dict[str, tuple[str, dict[str, Any], Bar | None]] = {
    "numerics-none": ("trace: none, nothing asked for", {"trace": "none", **_OFF}, Bar(1.005)),
    "numerics-basic": ("trace: basic", {"trace": "basic"}, Bar(1.02)),
    "numerics-layer": ("trace: layer", {"trace": "layer"}, Bar(1.08)),
    "numerics-layer-every": ("trace: layer, stats_every: 1", {"trace": "layer", "stats_every": 1}, None),
    "numerics-profile": (
        "profile: deferred, no closer looks",
        {"profile": "deferred", "escalate": "off"},
        None,
    ),
}
PROFILER = "torch-profiler"
KEYS = (*_ARMED, PROFILER)
# Measured over whole periods of sampled steps.
_LAYERS = ("numerics-layer", "numerics-layer-every")


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
    """One row a variant, from an alternation of those whose steps are all alike and one of those that read layers."""
    trained = transformer(sizes.width, sizes.layers)
    rows: dict[str, Row] = {}
    for keys, timed, mean in (
        ([key for key in KEYS if key not in _LAYERS], sizes.timed, False),
        (_LAYERS, Config().stats_every, True),
    ):
        variants: dict[str, Variant] = {
            key: Armed(directory / key, _ARMED[key][1]) if key in _ARMED else profiled for key in keys if key in wanted
        }
        if not variants:
            continue
        samples = alternate(
            trained.step, variants, seconds=sizes.transformer_seconds, clock=sizes.clock, timed=timed, mean=mean
        )
        rows |= {key: _row(key, sizes, samples) for key in variants}
    return [rows[key] for key in KEYS if key in rows]


def _row(key: str, sizes: Sizes, samples: Samples) -> Row:
    what, _, bar = _ARMED.get(key, ("torch.profiler, CPU", {}, None))
    numbers: dict[str, float | str] = {
        "bare ms": 1e3 * samples.median(BARE),
        "armed ms": 1e3 * samples.median(key),
        "added ms": 1e3 * samples.added(key, BARE).value,
        "median of the rounds' ratios": samples.paired(key, BARE),
        "from": samples.told,
    }
    return Row(key, f"transformer {sizes.width}, {what}: armed / bare", samples.ratio(key, BARE), bar, numbers)
