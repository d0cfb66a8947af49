"""Reading what numerics left: summaries and files of lines, each whole, to its schema, and of this trial."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from aorta_collectors.api import Artifacts, Expected
from aorta_collectors.artifacts import process, summaries
from aorta_collectors.artifacts.lines import Line, LinesFile
from aorta_collectors.numerics.config import Config

#: Kinds of files of lines, <kind>_<stem>.jsonl, and the schema of a line.
KINDS = {
    "spans": "numerics.span",
    "stats": "numerics.stats",
    "steps": "numerics.step",
    "escalations": "numerics.escalation",
}
#: Files that a process makes before its summary.
BESIDE = re.compile(rf"(?:{'|'.join(KINDS)})_(rank\d+(?:_p\d+)?)\.jsonl$")
_PAYLOAD = re.compile(r"payload_(rank\d+(?:_p\d+)?)_step\d+\.safetensors$")


@dataclass(frozen=True)
class Process(process.Process):
    """One process that numerics was armed in."""

    shown: ClassVar[tuple[str, ...]] = (
        *("watched_count", "called_count", "tensors_read", "opaque_names", "hook_errors"),
        *("profile_excluded", "escalations", "otlp", "payload", "stopped"),
    )

    @property
    def attached(self) -> bool:
        return int(self.summary["watched_count"]) > 0

    @property
    def bad_at(self) -> int | None:
        """At the latest: how many of all evaluations came before is not known."""
        found = self.summary.get("first_bad") or self.summary.get("stopped")
        return None if found is None else int(found["step"]) - int(self.summary.get("evaluation_steps", 0))

    @property
    def settled_steps(self) -> int:
        """Steps whose lines are sure to have been written.

        A sudden end takes those of the last one with it, and of the one before where its values come from a device.
        """
        if self.summary["status"] == "complete" and self.summary.get("stopped") is None:
            return self.steps
        on_host = self.summary.get("device") in ("cpu", None)
        return max(self.steps - (1 if on_host else 2), 0)

    def state(self) -> dict[str, Any]:
        lines = {kind: written(self.summary, kind) for kind in KINDS if kind in self.summary["files"]}
        return {**super().state(), "lines_written": lines}


@dataclass
class Contents:
    """What the lines of one process come to.

    Attributes:
        lines: By kind, of the files that are there.
        step_spans: Spans of kind step.
        measured: Steps that have a line.
    """

    lines: dict[str, int] = field(default_factory=dict)
    step_spans: int = 0
    measured: set[int] = field(default_factory=set)


def asked_kinds(config: Config) -> list[str]:
    """The files of lines that options ask for; each is there, if only empty."""
    asked = {
        "spans": config.traces,
        "stats": config.reads_layers,
        "steps": config.measures_steps,
        "escalations": config.escalates,
    }
    return [kind for kind, is_asked in asked.items() if is_asked]


def read_processes(artifacts: Artifacts, expected: Expected) -> list[Process]:
    """The processes that left a summary for this trial. Raises Fault (missing, invalid, stale)."""
    return summaries.read_processes(
        artifacts, expected, "numerics.summary", Process, module="aorta_collectors.numerics"
    )


def read_lines(artifacts: Artifacts, process: Process, config: Config) -> Contents:
    """Read a process's files of lines to their ends.

    Raises:
        Fault: invalid, stale; incomplete where the process died in the middle of a line.
    """
    contents = Contents()

    def look_at_spans(lines: Sequence[Line]) -> None:
        contents.step_spans += sum(line["kind"] == "step" for line in lines)

    def look_at_steps(lines: Sequence[Line]) -> None:
        contents.measured.update(line["step"] for line in lines)

    looks = {"spans": look_at_spans, "steps": look_at_steps}
    for kind in asked_kinds(config):
        identity = ("rank", "pid", *(("trace_id",) if kind == "spans" else ()))
        file = LinesFile(f"{kind}_{process.stem}.jsonl", KINDS[kind], written(process.summary, kind), identity)
        contents.lines[kind] = file.check(artifacts, process, looks.get(kind, _pass_by))
    return contents


def payload_bytes(artifacts: Artifacts, process: Process) -> list[int]:
    """Sizes of the process's files of full tensors."""
    found = ((_PAYLOAD.match(name), size) for name, size in artifacts.sizes().items())
    return [size for match, size in found if match is not None and match.group(1) == process.stem]


def written(summary: Mapping[str, Any], kind: str) -> int:
    """Lines of one kind, as the summary counts them."""
    return int(summary["files"].get(kind, {"written": 0})["written"])


def called(summary: Mapping[str, Any]) -> int:
    """Modules that were seen to be called."""
    return int(summary.get("called_count", summary["watched_count"]))


def dropped(summary: Mapping[str, Any], kind: str) -> int:
    """Lines of one kind that there was no room for."""
    return int(summary["files"].get(kind, {"dropped": 0})["dropped"])


def _pass_by(lines: Sequence[Line]) -> None:
    pass
