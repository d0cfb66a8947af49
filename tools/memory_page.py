"""The page of memory: its options, and the files that it writes."""

from __future__ import annotations

from collector_parts import File, alone, collect_block, directory, files, whole
from schema_tables import GENERATED

from aorta_collectors.memory.names import DEFAULT_DIRECTORY, DIRECTORY_VARIABLE, OPTIONS_SCHEMA, PREFIX
from aorta_collectors.memory.standalone import standalone

_FILES = (
    File("summary_rank<N>.json", "always", "what the process did, and how much memory it held"),
    File("memory_rank<N>.jsonl", "always", "a line for each look at memory"),
    File("growth_rank<N>.jsonl", "where allocations are recorded", "which stacks took what between two points"),
)
_ABOUT_FILES = (
    "In the trial's directory below `_subprocess`, or in `--dir`. Ranks are never merged. A second process of one rank "
    "in a launch has `rank<N>_p<pid>` in its files' names."
)


def memory() -> str:
    closing = directory(DIRECTORY_VARIABLE, DEFAULT_DIRECTORY)
    parts = [
        "# memory: options and files\n",
        GENERATED,
        "[Find what makes memory grow](../how-to/find-memory-growth.md) shows how it is used.\n",
        *collect_block(OPTIONS_SCHEMA),
        *alone(OPTIONS_SCHEMA, standalone(), "memory", PREFIX, ("--dir",), closing),
        *files(_FILES, _ABOUT_FILES),
        *whole("memory.summary"),
        *whole("memory.point"),
        *whole("memory.growth"),
        "The file that says what verification found has [a page of its own](receipt.md).",
    ]
    return "\n".join(parts) + "\n"
