"""A session armed around a block of code in this process, and the files it left."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from aorta_collectors.layer_numerics.config import Config
from aorta_collectors.layer_numerics.session import Session
from aorta_collectors.observe.watch import WatchGroup
from tests.support import records, summary

#: Every module of a model: the empty string is in each path.
ALL = WatchGroup(names=("",), channels=("input", "act", "igrad", "weight", "bias", "wgrad", "bgrad"))


class Left:
    """What a session left in its directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @property
    def records(self) -> list[dict[str, Any]]:
        return records(self.directory / "layers_rank0.jsonl")

    @property
    def summary(self) -> dict[str, Any]:
        return summary(self.directory)

    def of(self, layer: str, role: str, step: int = 1) -> list[dict[str, Any]]:
        return [
            record
            for record in self.records
            if (record["layer_name"], record["role"], record["step"]) == (layer, role, step)
        ]


@contextlib.contextmanager
def armed(directory: Path, *groups: WatchGroup, **options: Any) -> Iterator[Left]:
    """Records of every step, of all modules unless told otherwise. A hook that fails fails the test."""
    session = Session(Config(**{"groups": groups or (ALL,), "sample_every": 1, **options}), lambda: directory)
    session.arm()
    left = Left(directory)
    try:
        yield left
    finally:
        session.close()
    assert left.summary["hook_errors"] == 0, left.summary["first_hook_error"]
