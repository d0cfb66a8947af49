"""What a process that memory was armed in left, each file held against its schema; and a session around a block."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from aorta_collectors.memory.allocator import Allocator
from aorta_collectors.memory.config import Config
from aorta_collectors.memory.session import Session
from aorta_collectors.schema_check import first_error, validator
from tests.support import PYTHON, Ran, records, run

Line = dict[str, Any]


class Left:
    """One process's files in a directory."""

    def __init__(self, directory: Path, stem: str = "rank0") -> None:
        self.directory = directory
        self.stem = stem

    @property
    def summary(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((self.directory / f"summary_{self.stem}.json").read_text())
        assert first_error("memory.summary", content) is None
        return content

    @property
    def points(self) -> list[Line]:
        return self._lines("memory", "memory.point")

    @property
    def growth(self) -> list[Line]:
        return self._lines("growth", "memory.growth")

    def _lines(self, kind: str, schema: str) -> list[Line]:
        lines = records(self.directory / f"{kind}_{self.stem}.jsonl")
        assert [fault for line in lines if (fault := first_error(schema, line)) is not None] == []
        assert validator(schema).fits(lines)
        return lines

    @property
    def names(self) -> list[str]:
        """Of the points, in their order."""
        return [line["name"] for line in self.points]

    def grown(self, since: str, until: str, field: str = "anonymous") -> float:
        """The median, over all steps but the first two, of what the host holds more at one point than at another.

        The first steps take what stays: buffers of libraries, gradients, an optimizer's state.
        """
        held: dict[int, dict[str, int]] = {}
        for line in self.points:
            held.setdefault(line["step"], {})[line["name"]] = line["host"][field]
        return median(told[until] - told[since] for step, told in held.items() if step > 2)


@contextlib.contextmanager
def armed(directory: Path, allocator: Allocator | None = None, **options: Any) -> Iterator[Session]:
    session = Session(Config(**options), lambda: directory, lambda: "the trial", allocator=allocator)
    session.arm()
    try:
        yield session
    finally:
        session.close()


def run_observed(cwd: Path, program: str, *options: str, arguments: tuple[str, ...] = ()) -> Ran:
    """A program below `python -m aorta_collectors.memory`, which writes to out/."""
    (cwd / "train.py").write_text(program)
    return run([PYTHON, "-m", "aorta_collectors.memory", "--dir", "out", *options, "train.py", *arguments], cwd)
