"""Reading what layer_numerics left: summaries and records, each whole, to the schema, and of this trial."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from aorta_collectors.api import Artifacts, Expected
from aorta_collectors.artifacts import process, summaries
from aorta_collectors.artifacts.lines import Line, LinesFile
from aorta_collectors.layer_numerics.order import training_step

_NAMES = 1000


@dataclass(frozen=True)
class Process(process.Process):
    """One process that layer_numerics was armed in."""

    shown: ClassVar[tuple[str, ...]] = (
        *("watched_count", "records_written"),
        *("records_cut", "tensors_unreadable", "unobserved_names", "opaque_names", "hook_errors"),
        *("follow_mode", "stage_reads_active", "origin"),
    )

    @property
    def attached(self) -> bool:
        """Hooks stood somewhere. The stock logger's follow reads at stages without hooking a module."""
        checkpoints = ("watched_count", "pipeline_checkpoints", "forward_checkpoints")
        return any(int(self.summary.get(key, 0)) > 0 for key in checkpoints)

    @property
    def bad_at(self) -> int | None:
        found = self.summary["first_bad"] or self.summary.get("origin")
        return None if found is None else training_step(found)


def is_stock(expected: Expected) -> bool:
    """Whether the stock logger was asked for, whose files carry less."""
    return expected.options.values.get("frontend") == "aorta"


def read_processes(artifacts: Artifacts, expected: Expected) -> list[Process]:
    """The processes that left a summary for this trial. Raises Fault (missing, invalid, stale)."""
    return summaries.read_processes(
        artifacts,
        expected,
        "layer_numerics.summary",
        Process,
        module="aorta_collectors.layer_numerics",
        has_run_ids=not is_stock(expected),
    )


def check_records(artifacts: Artifacts, process: Process) -> frozenset[str]:
    """Read a process's records to the last one; the names of followed tensors.

    Raises:
        Fault: invalid, stale; incomplete where the process died in the middle of a line.
    """
    followed: set[str] = set()

    def look(records: Sequence[Line]) -> None:
        if len(followed) < _NAMES:
            followed.update(record["layer_name"] for record in records if record["direction"] == "pipeline")

    written = int(process.summary["records_written"])
    file = LinesFile(f"layers_{process.stem}.jsonl", "layer_numerics.record", written, ("rank", "pid", "host"))
    file.check(artifacts, process, look)
    return frozenset(followed)
