"""When tensors count as the same: declared before the runs, so that a report that takes something else says so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aorta_collectors.analysis.bundles.criterion import Criterion

AGREEMENT = "agreement"


def criterion_fields(criterion: Criterion) -> dict[str, Any]:
    """A criterion as metadata.json and evidence/index.json have it."""
    return {name: getattr(criterion, name) for name in ("kind", "ulps", "rtol", "atol", "equal_nan")}


def declared_criterion(metadata: Mapping[str, Any]) -> Criterion | None:
    """What `new` declared; None where nothing was: no tensors are collected, or the artifacts were there before."""
    fields = metadata.get(AGREEMENT)
    return None if fields is None else Criterion(**fields)


def criterion_for(metadata: Mapping[str, Any], chosen: Criterion | None) -> Criterion:
    """What a report compares with: what is chosen for it, or else what was declared, or the default."""
    return chosen or declared_criterion(metadata) or Criterion()


def choice_text(metadata: Mapping[str, Any], criterion: Criterion) -> str:
    """That a report takes another criterion than the one declared, in a sentence; empty where it takes that one."""
    declared = declared_criterion(metadata)
    if criterion == (declared or Criterion()):
        return ""
    was = f"declared was: {declared.describe()}" if declared is not None else "none was declared"
    return f"When tensors count as the same was chosen for this report, after the runs: {criterion.describe()}; {was}."
