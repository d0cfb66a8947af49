"""The records of all processes of a trial in one order, and the earliest bad one (order.py says which that is)."""

from __future__ import annotations

import heapq
from collections.abc import Generator
from contextlib import closing
from typing import Any

from aorta_collectors import strict_json
from aorta_collectors.analysis.summaries import read_summaries
from aorta_collectors.api import ArtifactError, Artifacts
from aorta_collectors.layer_numerics.order import Alignment, Line, Position

_Placed = tuple[tuple[Position, str, int], dict[str, Any]]


def merged(artifacts: Artifacts) -> Generator[dict[str, Any], None, None]:
    """Every record, with `restart`, the attempt of its process. One line of each file is in memory at a time.

    A record never stands before one that is above it in its file. The last line of a file may be torn off, since its
    process may have been killed, or still be writing.

    Raises:
        ArtifactError: There are no summaries, or a file is not what layer_numerics writes.
    """
    summaries = _summaries(artifacts)
    alignment = Alignment(summaries.values())
    streams = [_placed(artifacts, stem, alignment.line(summary)) for stem, summary in summaries.items()]
    for _, record in heapq.merge(*streams, key=lambda entry: entry[0]):
        yield record


def first_bad(artifacts: Artifacts) -> dict[str, Any] | None:
    """The earliest bad record of all processes; None where nothing bad was seen. Raises as `merged` does.

    Where a process did not write the record, since NANLOG_MAX_RECORDS were written before, it is what the summary says.
    """
    summaries = _summaries(artifacts)
    alignment = Alignment(summaries.values())
    found = []
    for stem, summary in summaries.items():
        line = alignment.line(summary)
        with closing(_placed(artifacts, stem, line)) as records:
            record = next((record for _, record in records if record["bad"]), None)
        if record is None and summary["first_bad"] is not None:
            short = dict(summary["first_bad"])
            record = {
                "layer_name": short.pop("layer"),
                **short,
                "bad": True,
                "rank": line.rank,
                "restart": line.restart,
            }
        if record is not None:
            found.append((line.position(record, record.get("matmul_calls_so_far", 0)), stem, record))
    return min(found, key=lambda entry: entry[:2])[2] if found else None


def _summaries(artifacts: Artifacts) -> dict[str, dict[str, Any]]:
    found = read_summaries(artifacts)
    if not found:
        raise ArtifactError("no summary_rank<N>.json is there")
    return found


def _placed(artifacts: Artifacts, stem: str, of_process: Line) -> Generator[_Placed, None, None]:
    """The records of one process, each with its place among all."""
    name = f"layers_{stem}.jsonl"
    if name not in artifacts.sizes():
        return
    latest: Position = ()
    step: int | None = None
    count = 0
    for line_number, line in enumerate(artifacts.lines(name), start=1):
        if not line.endswith(b"\n"):
            return
        try:
            record = strict_json.loads(line)
            count = count + 1 if record["step"] == step else 0
            step = record["step"]
            # What is below in a file does not go back, whatever it says.
            place = of_process.position(record, count)
            if not all(isinstance(number, int) for number in place):
                raise TypeError(f"step, seq and evaluation_steps must be integers, got {place}")
            latest = max(latest, place)
            record["bad"], record["restart"] = bool(record["bad"]), of_process.restart
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ArtifactError(f"{name}: line {line_number} is no record: {type(error).__name__}: {error}") from None
        yield (latest, stem, line_number), record
