"""A step's metrics as a person reads them on stderr."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

_FIRST_LINES = 10
_SECONDS_BETWEEN = 1.0
_UNKNOWN = "-"
_MB_IN_GB = 1000


class Pace:
    """Keeps lines to what a person can read: each of the first, then at most one a second, and each that is due.

    Args:
        clock: Seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._num_told = 0
        self._last = 0.0

    def allows(self, *, is_due: bool) -> bool:
        now = self._clock()
        if not (is_due or self._num_told < _FIRST_LINES or now - self._last >= _SECONDS_BETWEEN):
            return False
        self._num_told += 1
        self._last = now
        return True


def step_line(metrics: Mapping[str, Any]) -> str:
    """One line from what schemas/numerics.step.json describes; a dash for what is unknown.

    `step=123 training loss=0.45 tok/s=1250 mfu=42.3% gnorm=5.0e-03 mem=22/80GB step=42ms eta=3m10s`
    """
    if metrics["tokens_per_s"] is not None or metrics["samples_per_s"] is None:
        rate = f"tok/s={_number(metrics['tokens_per_s'], '.4g')}"
    else:
        rate = f"samples/s={_number(metrics['samples_per_s'], '.4g')}"
    mfu = metrics["mfu"]
    return (
        f"step={metrics['step']} {metrics['kind']} loss={_number(metrics['loss'], '.4g')} {rate} "
        f"mfu={_UNKNOWN if mfu is None else f'{mfu:.1%}'} gnorm={_number(metrics['grad_norm'], '.1e')} "
        f"mem={_gigabytes(metrics['memory_used_mb'])}/{_gigabytes(metrics['memory_total_mb'])}GB "
        f"step={_number(metrics['step_ms'], '.3g')}ms eta={_duration(metrics['eta_s'])}"
    )


def _number(value: float | str | None, form: str) -> str:
    if value is None or isinstance(value, str):
        return value or _UNKNOWN
    # Whole numbers in full: 1.25e+04 tokens a second reads badly.
    return f"{value:.0f}" if form.endswith("g") and 1e3 <= abs(value) < 1e9 else format(value, form)


def _gigabytes(megabytes: float | None) -> str:
    return _UNKNOWN if megabytes is None else f"{megabytes / _MB_IN_GB:.3g}"


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return _UNKNOWN
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}d{hours}h"
    if hours:
        return f"{hours}h{minutes}m"
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"
