"""The fields of summary_rank<N>.json that are the engine's and its parts'; schemas/numerics.summary.json."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from aorta_collectors.numerics.config import Config
from aorta_collectors.numerics.engine.engine import Engine
from aorta_collectors.numerics.part import Part


def configured_fields(config: Config) -> dict[str, Any]:
    return {"torch": torch.__version__, "config": config.describe()}


def observed_fields(engine: Engine, parts: Sequence[Part]) -> dict[str, Any]:
    """What one part fails to tell must not keep the others' from being told; it counts as an error in a hook."""
    told = engine.fields()
    for fields in _fields_of(parts):
        if isinstance(fields, Exception):
            told["hook_errors"] += 1
            told["first_hook_error"] = told["first_hook_error"] or f"{type(fields).__name__}: {fields}"
        else:
            told.update(fields)
    return told


def told_by(parts: Sequence[Part], name: str) -> Mapping[str, Any] | None:
    """The field `name` of whichever part has something there."""
    found = (fields.get(name) for fields in _fields_of(parts) if not isinstance(fields, Exception))
    return next(filter(None, found), None)


def _fields_of(parts: Sequence[Part]) -> Iterator[Mapping[str, Any] | Exception]:
    for part in parts:
        try:
            yield part.fields()
        except Exception as error:
            yield error
