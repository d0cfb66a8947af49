"""How much is measured: for the table, for a quick look, or only to see that everything runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Sizes:
    """Sizes of the models, and how long each of them is measured.

    Attributes:
        ..._seconds: What an alternation takes. A noisy machine gets fewer rounds, not more time.
        width, wide: Of the transformer, for the ratios and for the limit.
        timed: Steps of a block that count.
        growth_steps: Steps of one session, in ten parts of which the first and the last are compared.
        growth_modules: Numbers of layers.
        clock: Wall clock, or time.process_time with one thread.
    """

    width: int = 256
    wide: int = 512
    layers: int = 6
    timed: int = 3
    transformer_seconds: float = 240
    limit_seconds: float = 240
    small_layers: int = 2000
    small_seconds: float = 50
    written_layers: int = 250
    written_seconds: float = 40
    written_steps: int = 20
    growth_steps: int = 20_000
    growth_modules: tuple[int, ...] = (100, 300, 1000, 3000)
    growth_seconds: float = 60
    starts: int = 12
    gpu_width: int = 2048
    gpu_layers: int = 20
    gpu_seconds: float = 60
    clock: Callable[[], float] = time.perf_counter


QUICK = Sizes(
    transformer_seconds=35,
    limit_seconds=20,
    small_seconds=12,
    written_seconds=8,
    growth_steps=4000,
    growth_modules=(100, 1000, 3000),
    growth_seconds=12,
    starts=4,
    gpu_seconds=15,
)

TINY = Sizes(
    width=16,
    wide=16,
    layers=1,
    timed=1,
    transformer_seconds=0,
    limit_seconds=0,
    small_layers=4,
    small_seconds=0,
    written_layers=4,
    written_seconds=0,
    written_steps=2,
    growth_steps=200,
    growth_modules=(2, 4),
    growth_seconds=0,
    starts=1,
    gpu_width=64,
    gpu_layers=1,
    gpu_seconds=0,
)
