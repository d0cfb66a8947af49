"""Overlapping memory in a terminal: the bad tensor, and what lay in its place, in the order of observation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from aorta_collectors.analysis.captures import trial_place
from aorta_collectors.analysis.overlap import Bad, Fields
from aorta_collectors.report import columns
from aorta_collectors.report.wording import COUNTS, number, read_at, text

if TYPE_CHECKING:
    from rich.console import Console


def render(found: Sequence[Bad], console: Console, step: int | None, layer_asked: str | None) -> None:
    """Write what was found.

    Args:
        step, layer_asked: Which bad records were looked at; None for any.
    """
    from rich.text import Text

    def say(line: str, style: str = "") -> None:
        console.print(Text(line, style=style), soft_wrap=not console.is_terminal)

    if not found:
        asked = "" if step is None else f" in step {step}"
        asked += "" if layer_asked is None else f" of {text(layer_asked)}"
        say(f"There is no bad record{asked}, so that there is nothing to overlap.")
        return
    for index, bad in enumerate(found):
        if index:
            say("")
        say(f"{_process(bad)}: step {bad.record['step']}, {read_at(bad.record)} holds {_state(bad.record)}", "bold")
        if not bad.has_address:
            say("It is not recorded where that lay: run with NANLOG_ADDR=1.", "yellow")
            continue
        size = bad.record["storage_nbytes"]
        say(f"It begins at {text(bad.record['data_ptr'])}, in {size} bytes from {text(bad.record['storage_ptr'])}.")
        if bad.num_overlaps:
            of = "" if bad.num_overlaps == len(bad.overlaps) else f", {len(bad.overlaps)} are shown (--most)"
            say(f"{bad.num_overlaps} of {bad.num_same - 1 + bad.num_before} other records overlap it{of}:")
            _table(bad, console)
        else:
            say(f"None of {bad.num_same - 1 + bad.num_before} other records of these two steps overlaps it.")
        if not bad.num_before:
            kept = "NANLOG_SAMPLE_EVERY=1, or NANLOG_PRE_CONTEXT=1 for the run-up alone, records it"
            say(f"Nothing is recorded of the step before; {kept}.", "yellow")
    if any(bad.num_overlaps for bad in found):
        say("")
        say("A lead, no proof: the allocator gives the memory of a tensor that is gone to the next one.")


def _table(bad: Bad, console: Console) -> None:
    table = columns.table("step", "read", "bytes", "tensor", "holds", left=("read",), folded=("tensor", "holds"))
    for overlap in bad.overlaps:
        record = overlap.record
        shared = f"{overlap.num_bytes}" if overlap.relation == "same bytes" else f"up to {overlap.num_bytes}"
        note = " (the same tensor)" if overlap.same_tensor else ""
        read = "before" if overlap.before else "after"
        style = "red" if record["kind"] else "dim" if overlap.same_tensor else ""
        table.add_row(str(record["step"]), read, shared, f"{read_at(record)}{note}", _state(record), style=style)
    console.print(table)


def _process(bad: Bad) -> str:
    parts = (trial_place(*bad.process[:3]), f"rank {bad.record['rank']}")
    return text(", ".join(filter(None, parts)))


def _state(record: Fields) -> str:
    parts = [f"{record[name]} {word}" for name, word in COUNTS if record[name]]
    if record["finite_abs_max"] is not None:
        parts.append(f"abs max {number(record['finite_abs_max'])}")
    return ", ".join(parts) or "nothing finite"
