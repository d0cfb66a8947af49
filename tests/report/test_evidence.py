"""The table of evidence: what stands under "first bad"."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from aorta_collectors.api import Verdict
from aorta_collectors.evidence.finding import Finding
from aorta_collectors.evidence.receipt import Receipt
from aorta_collectors.report.evidence import first_bad

RECEIPT = Receipt(
    collector="numerics",
    trial="training_d0_m0_t0",
    cell="a",
    run_ids=("made-up",),
    verdict="captured",
    reason="",
    route="front-end",
    options={},
    artifacts="trial_d0_m0_t0/numerics",
    files={},
    metrics={},
    details={},
)
BAD = {"numerics_first_bad_step": 3, "numerics_first_bad_direction": "forward", "numerics_first_bad_layer": "fc"}


@pytest.mark.parametrize(
    ("metrics", "said"),
    [
        ({"numerics_steps": 4, "numerics_tensors_read": 8}, "none"),
        ({"numerics_steps": 4, "numerics_tensors_read": 0}, "-"),  # trace: basic reads no layers
        (
            {"numerics_steps": 4, "numerics_tensors_read": 8, **BAD, "numerics_first_bad_kind": "nan"},
            "step 3 forward fc nan",
        ),
        ({}, "-"),
    ],
)
def test_of_numerics(metrics: dict[str, int | str], said: str) -> None:
    receipt = replace(RECEIPT, metrics=metrics)
    finding = Finding("a", RECEIPT.trial, "numerics", Verdict("captured"), "", Path("t"), Path("a"), receipt)
    assert first_bad(finding) == said


@pytest.mark.parametrize(
    ("collector", "metrics", "said"),
    [
        ("layer_numerics", {"layer_numerics_steps": 4, "layer_numerics_modules": 2}, "none"),
        ("tensors", {"tensors_steps": 4, "tensors_observed": 8}, "none"),
        (
            "tensors",
            {"tensors_observed": 8, "tensors_first_nonfinite_step": 2, "tensors_first_nonfinite_layer": "fc"},
            "step 2 fc",
        ),
        ("memory", {"memory_steps": 4, "memory_points": 8}, "-"),  # it looks at no values
    ],
)
def test_of_others(collector: str, metrics: dict[str, int | str], said: str) -> None:
    receipt = replace(RECEIPT, collector=collector, metrics=metrics)
    finding = Finding("a", RECEIPT.trial, collector, Verdict("captured"), "", Path("t"), Path("a"), receipt)
    assert first_bad(finding) == said
