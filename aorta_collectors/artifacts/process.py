"""One process of a trial, as its summary tells of it, and the fault that a check finds."""

from __future__ import annotations

import itertools
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from aorta_collectors.api import Verdict

# By its exit status the program says that all is well, or another one goes on in its place. What the last step left has
# been written either way.
_IN_ORDER = re.compile(r"exit|os\._exit 0|os\.execve? .+")
# Of a list or a text in the receipt, which is to stay small beside summaries of any size.
_SHOWN_ITEMS = 20
_SHOWN_CHARACTERS = 500


class Fault(Exception):
    """A check that does not hold."""

    def __init__(self, verdict: Verdict, reason: str) -> None:
        super().__init__(reason)
        self.verdict, self.reason = verdict, reason


@dataclass(frozen=True)
class Process(ABC):
    """One process's summary, and the stem of its files' names, such as rank0. A collector derives its own.

    Attributes:
        killed_by: Of a process that a signal has ended, which one and where; None where nobody noted it.
        shown: Fields of the summary that the receipt has too, beside `status` and who the process was.
    """

    stem: str
    summary: Mapping[str, Any]
    killed_by: str | None = None

    shown: ClassVar[tuple[str, ...]] = ()

    @property
    @abstractmethod
    def attached(self) -> bool:
        """Whether a model was observed in it."""

    @property
    @abstractmethod
    def bad_at(self) -> int | None:
        """The training step in which it saw something bad; None where all was well."""

    @property
    def rank(self) -> int:
        return int(self.summary["rank"])

    @property
    def steps(self) -> int:
        return int(self.summary["steps_seen"])

    @property
    def restart(self) -> int:
        """How often its launcher had started its workers anew before."""
        return int(self.summary.get("restart", 0))

    @property
    def running(self) -> bool:
        """Nothing but its death has ended it."""
        return bool(self.summary.get("status", "complete") == "running")

    @property
    def is_behind(self) -> bool:
        """Whether the summary may say less than the lines: what could not be written can be the last summary."""
        return self.running or bool(self.summary.get("write_error"))

    @property
    def ended_by(self) -> str:
        """exit, or what else has ended the program; empty where that is not known."""
        if self.running:
            return self.killed_by or ""
        return str(self.summary.get("ended_by") or "exit")

    @property
    def ended_in_order(self) -> bool:
        return is_in_order(self.ended_by) and self.summary.get("status") != "ended"

    def state(self) -> dict[str, Any]:
        """For the receipt."""
        keys = ("rank", "pid", "host", "status", "steps_seen", "evaluation_steps", *self.shown, "warnings")
        return {
            "files": self.stem,
            **{key: _short(self.summary.get(key)) for key in keys},
            "ended_by": self.killed_by or self.summary.get("ended_by"),
        }


def is_in_order(ended_by: str) -> bool:
    """Whether a program that ended like that had come to its end by itself."""
    return bool(_IN_ORDER.fullmatch(ended_by))


def _short(value: Any) -> Any:
    """The value with its long texts and lists cut: a receipt is there to be read."""
    if isinstance(value, str) and len(value) > _SHOWN_CHARACTERS:
        return value[:_SHOWN_CHARACTERS] + " ..."
    if isinstance(value, list):
        more = [f"and {len(value) - _SHOWN_ITEMS} more"] if len(value) > _SHOWN_ITEMS else []
        return [*(_short(item) for item in value[:_SHOWN_ITEMS]), *more]
    if isinstance(value, dict):
        return {key: _short(item) for key, item in itertools.islice(value.items(), _SHOWN_ITEMS)}
    return value
