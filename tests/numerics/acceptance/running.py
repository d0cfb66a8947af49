"""Programs below the installed commands, and what holds of all that they leave behind."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.numerics.left import Left
from tests.support import PYTHON, ROOT, Ran, run

NUMERICS = (PYTHON, "-m", "aorta_collectors.numerics")

Span = Mapping[str, Any]


def armed(cwd: Path, code: str, *options: str, program: Sequence[str] = (), **env: str) -> tuple[Ran, Left]:
    """A script in a directory of its own, below `python -m aorta_collectors.numerics`, which writes to out/.

    Args:
        program: The script's arguments.
    """
    cwd.mkdir(parents=True, exist_ok=True)
    (cwd / "program.py").write_text(code)
    ran = run([*NUMERICS, "--dir", "out", *options, "program.py", *program], cwd, {"PYTHONPATH": str(ROOT), **env})
    return ran, Left(cwd / "out")


def bare(cwd: Path, code: str, **env: str) -> Ran:
    """The same without anything of ours."""
    cwd.mkdir(parents=True, exist_ok=True)
    (cwd / "program.py").write_text(code)
    return run([PYTHON, "program.py"], cwd, {"PYTHONPATH": str(ROOT), **env})


class Tree:
    """The spans of one process by what encloses what."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self.spans = spans
        self.by_id = {span["span_id"]: span for span in spans}
        assert len(self.by_id) == len(spans)

    def named(self, name: str, direction: str | None = None, step: int | None = None) -> list[Span]:
        """In the order in which they began."""
        found = (
            span
            for span in self.spans
            if span["name"] == name and direction in (None, span["direction"]) and step in (None, span["step"])
        )
        return sorted(found, key=lambda span: span["start_ns"])

    def parent(self, span: Span) -> Span | None:
        return self.by_id.get(span["parent_span_id"])

    def ancestors(self, span: Span) -> Iterator[Span]:
        above = self.parent(span)
        while above is not None:
            yield above
            above = self.parent(above)

    def assert_nested(self, slack_ns: int = 1000) -> None:
        """Every span lies in the one that it names as its parent, began after it, and is of its step."""
        for span in self.spans:
            above = self.parent(span)
            if above is None:
                assert span["kind"] == "process", span
                continue
            assert above["start_ns"] - slack_ns <= span["start_ns"], (above, span)
            assert end(span) <= end(above) + slack_ns, (above, span)
            assert above["kind"] == "process" or above["step"] == span["step"], (above, span)
            assert above["lamport"] < span["lamport"], (above, span)


def end(span: Span) -> int:
    ending: int = span["start_ns"] + span["duration_ns"]
    return ending


def follow_one_another(spans: Sequence[Span]) -> bool:
    """Whether each begins when the one before has ended."""
    return all(end(before) <= after["start_ns"] for before, after in itertools.pairwise(spans))


def of_brick(summary: Mapping[str, Any], layer: str, direction: str) -> Mapping[str, Any]:
    """Its row of the table of bricks."""
    (row,) = (row for row in summary["bricks"] if (row["layer"], row["direction"]) == (layer, direction))
    return dict(row)
