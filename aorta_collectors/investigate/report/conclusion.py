"""One conclusion: what was seen, how far that goes, and the artifacts that it stands on."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aorta_collectors.investigate.evidence import Evidence
from aorta_collectors.investigate.report.subjects import Subject


class Standing(enum.Enum):
    """How far a conclusion goes. Nothing that is said automatically goes further than the last one."""

    OBSERVED = "observed"
    CORRELATION = "correlation: seen together, and no cause"
    EFFECT = "an effect, shown by runs that took turns; what within it is the cause is not shown"
    CHANGED = "an open question: it rests on runs from before and after something changed"
    OPEN = "not shown"


@dataclass(frozen=True)
class Conclusion:
    """
    Attributes:
        text: A sentence or two.
        evidence: Names of files in evidence/.
        artifacts: Absolute paths of other files that it stands on.
    """

    text: str
    standing: Standing
    evidence: tuple[str, ...] = ()
    artifacts: tuple[Path, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "text": self.text,
            "standing": self.standing.value,
            "evidence": list(self.evidence),
            "artifacts": list(map(str, self.artifacts)),
        }


def showing(evidence: Iterable[Evidence], subjects: Sequence[Subject], *, verb: Sequence[str]) -> tuple[str, ...]:
    """Names of the evidence files of a verb, such as ("tensors", "compare"), that are about some of the subjects."""
    wanted = {id(subject) for subject in subjects}
    return tuple(
        each.name
        for each in evidence
        if each.view.words[: len(verb)] == tuple(verb) and all(id(subject) in wanted for subject in each.view.subjects)
    )


def counted(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "s")


def numbers(values: Iterable[object]) -> str:
    """Such as "2", "2 and 4" or "1, 2 and 4"."""
    words = list(map(str, values))
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else ""
