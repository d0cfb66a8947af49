"""A step's line on stderr."""

from __future__ import annotations

from typing import Any

import pytest

from aorta_collectors.numerics.metrics.step_line import Pace, step_line

KNOWN: dict[str, Any] = {
    "step": 123,
    "kind": "training",
    "step_ms": 42.0,
    "loss": 0.45,
    "samples_per_s": 12.5,
    "tokens_per_s": 1250.4,
    "mfu": 0.423,
    "grad_norm": 0.005,
    "memory_used_mb": 22_000.0,
    "memory_total_mb": 80_000.0,
    "eta_s": 190.0,
}
UNKNOWN = {**dict.fromkeys(KNOWN), "step": 1, "kind": "inference", "step_ms": 0.25}


@pytest.mark.parametrize(
    ("metrics", "line"),
    [
        (
            KNOWN,
            "step=123 training loss=0.45 tok/s=1250 mfu=42.3% gnorm=5.0e-03 mem=22/80GB step=42ms eta=3m10s",
        ),
        (
            {**KNOWN, "loss": -4.117e20, "tokens_per_s": 1234567.0},
            "step=123 training loss=-4.117e+20 tok/s=1234567 mfu=42.3% gnorm=5.0e-03 mem=22/80GB step=42ms eta=3m10s",
        ),
        (UNKNOWN, "step=1 inference loss=- tok/s=- mfu=- gnorm=- mem=-/-GB step=0.25ms eta=-"),
        (
            {**KNOWN, "tokens_per_s": None, "loss": "nan", "grad_norm": "inf", "eta_s": 59.6, "step_ms": 2345.6},
            "step=123 training loss=nan samples/s=12.5 mfu=42.3% gnorm=inf mem=22/80GB step=2346ms eta=1m0s",
        ),
        (
            {**KNOWN, "eta_s": 93_784.0, "step_ms": 1.0},
            "step=123 training loss=0.45 tok/s=1250 mfu=42.3% gnorm=5.0e-03 mem=22/80GB step=1ms eta=1d2h",
        ),
        ({**KNOWN, "eta_s": 7_384.0}, step_line({**KNOWN}).replace("3m10s", "2h3m")),
        ({**KNOWN, "eta_s": 0.0}, step_line({**KNOWN}).replace("3m10s", "0s")),
    ],
)
def test_lines(metrics: dict[str, Any], line: str) -> None:
    assert step_line(metrics) == line


def test_the_first_ten_then_one_a_second_and_what_is_due() -> None:
    now = [100.0]
    pace = Pace(lambda: now[0])
    told = []
    for step in range(1, 41):
        now[0] += 0.25
        if pace.allows(is_due=step == 22):
            told.append(step)
    assert told == [*range(1, 11), 14, 18, 22, 26, 30, 34, 38]
