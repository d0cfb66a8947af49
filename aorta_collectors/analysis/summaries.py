"""The summaries that the processes of one trial left, by the stem of their files' names."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from aorta_collectors import strict_json
from aorta_collectors.api import ArtifactError, Artifacts
from aorta_collectors.artifacts.summaries import SUMMARY
from aorta_collectors.schema_check import fault_text, first_fault, validator

_LAYER_NUMERICS = "layer_numerics.summary"


def read_summaries(artifacts: Artifacts, schema: str = _LAYER_NUMERICS) -> dict[str, dict[str, Any]]:
    """Such as {"rank0": {...}, "rank1": {...}}; empty where there are none.

    Args:
        schema: That they are to.

    Raises:
        ArtifactError: A file that is named like a summary is none.
    """
    names = ((name, SUMMARY.match(name)) for name in artifacts.sizes())
    return {match.group(1): read_summary(artifacts, name, schema) for name, match in names if match is not None}


def read_summary(artifacts: Artifacts, name: str, schema: str = _LAYER_NUMERICS) -> dict[str, Any]:
    """One of them. Raises ArtifactError."""
    try:
        summary: dict[str, Any] = strict_json.loads(artifacts.read(name))
    except ValueError as error:
        raise ArtifactError(f"{name}: {error}") from None
    fault = first_fault(validator(schema), summary)
    if fault is not None:
        raise ArtifactError(f"{name} is no summary of {schema.partition('.')[0]}: {fault_text(fault)}")
    return summary


def started_at(summary: Mapping[str, Any]) -> float:
    """When the process was armed, in seconds since the epoch; 0 where that isn't known."""
    try:
        return datetime.fromisoformat(str(summary.get("started_at"))).timestamp()
    except ValueError:
        return 0.0
