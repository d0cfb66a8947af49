"""A session armed around a block of code, and what a process that tensors was armed in has left behind."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from aorta_collectors.api import Expected, Verdict, Verification
from aorta_collectors.evidence.directory import Anchor
from aorta_collectors.schema_check import first_error
from aorta_collectors.tensors.collector import Tensors
from aorta_collectors.tensors.config import Config
from aorta_collectors.tensors.observation import Observation
from aorta_collectors.tensors.recorder import Recorder
from aorta_collectors.tensors.session import Session
from tests.support import PYTHON, Ran, records, run

Line = dict[str, Any]

RUN_ID = "the trial"
ALL_POINTS = ("before_forward", "after_forward", "after_backward", "after_step")


class Left:
    """One process's files in a directory, each held against its schema."""

    def __init__(self, directory: Path, stem: str = "rank0") -> None:
        self.directory = directory
        self.stem = stem

    @property
    def summary(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((self.directory / f"summary_{self.stem}.json").read_text())
        assert first_error("tensors.summary", content) is None, first_error("tensors.summary", content)
        return content

    @property
    def lines(self) -> list[Line]:
        lines = records(self.directory / f"tensors_{self.stem}.jsonl")
        faults = [first_error("tensors.observation", line) for line in lines]
        assert [fault for fault in faults if fault is not None] == []
        return lines

    def named(self, name: str) -> list[Line]:
        return [line for line in self.lines if line["name"] == name]

    def one(self, name: str, invocation: int = 0) -> Line:
        (found,) = (line for line in self.named(name) if line["invocation"] == invocation)
        return found

    @property
    def names(self) -> list[str]:
        """In the order in which they came, each once."""
        return list(dict.fromkeys(line["name"] for line in self.lines))

    def values(self, line: Line) -> Tensor:
        """As the schema says that they are to be read."""
        stored = load_file(self.directory / line["file"])[line["key"]]
        dtype = getattr(torch, line["dtype"])
        return stored if stored.dtype is dtype else stored.view(dtype).view(line["shape"])

    def verified(self, raw: dict[str, str] | None = None, run_id: str = RUN_ID, **expected: Any) -> Verification:
        collector = Tensors()
        asked = Expected(collector.validate(raw), frozenset({run_id}), **expected)
        with Anchor(self.directory.parent).open(self.directory) as artifacts:
            return collector.verify(artifacts, asked)

    def told(self, raw: dict[str, str] | None = None, **expected: Any) -> tuple[Verdict, str]:
        found = self.verified(raw, **expected)
        return found.verdict, found.reason


@contextlib.contextmanager
def armed(directory: Path, **options: Any) -> Iterator[Left]:
    """No exception may have been caught in a hook when the block has ended."""
    session = Session(Config(**options), lambda: directory, lambda: RUN_ID)
    session.arm()
    try:
        yield Left(directory)
    finally:
        session.close()
    assert session.fields()["first_hook_error"] is None, session.fields()["first_hook_error"]


class Kept:
    """A sink that keeps what it is given."""

    def __init__(self) -> None:
        self.stretches: list[tuple[int, list[Observation]]] = []

    def take_in(self, step: int, observations: Sequence[Observation]) -> None:
        self.stretches.append((step, list(observations)))

    @property
    def observations(self) -> list[Observation]:
        return [observation for _, observations in self.stretches for observation in observations]


def recorded(*tensors: Tensor, **options: Any) -> list[Observation]:
    """What a recorder makes of tensors that the program names t0, t1, ..."""
    kept = Kept()
    recorder = Recorder(Config(**options), kept)
    for number, tensor in enumerate(tensors):
        recorder.take_user(f"t{number}", tensor)
    recorder.end(True)
    return kept.observations


def ran(cwd: Path, code: str, *options: str, **env: str) -> Ran:
    """A program below `python -m aorta_collectors.tensors`, which writes to out/."""
    (cwd / "train.py").write_text(code)
    return run([PYTHON, "-m", "aorta_collectors.tensors", "--dir", "out", *options, "train.py"], cwd, env)
