"""Whether the numbers of a line agree with each other: what is in use is part of what is held, and what is held is not
more than its peak."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from aorta_collectors.api import Verdict
from aorta_collectors.artifacts.process import Fault


def check_numbers(name: str, line: Mapping[str, Any], order: int) -> None:
    """Raise Fault (invalid) for the first contradiction.

    Args:
        name: Of the file.
        order: That the line must have: points are counted without a gap.
    """
    if line["order"] != order:
        raise Fault(Verdict.INVALID, f"{name}: point {order} is missing; {line['name']} is point {line['order']}")
    fault = next(_contradictions(line), None)
    if fault is not None:
        raise Fault(Verdict.INVALID, f"{name}: point {order}, {line['name']}: {fault}")


def _contradictions(line: Mapping[str, Any]) -> Iterator[str]:
    host = line["host"]
    if 0 < host["peak_rss"] < host["rss"]:  # some systems tell no peak
        yield f"host: rss {host['rss']} is above peak_rss {host['peak_rss']}"
    for device in line["devices"]:
        yield from _of_blocks(device["device"], device)
        for pool in device["pools"] or ():
            where = f"{device['device']} pool {pool['pool']}"
            yield from _of_blocks(where, pool)
            if pool["largest_inactive"] > pool["inactive"]:
                yield f"{where}: largest_inactive {pool['largest_inactive']} is above inactive {pool['inactive']}"


def _of_blocks(where: str, told: Mapping[str, Any]) -> Iterator[str]:
    for more, less in (("reserved", "active"), ("active", "allocated")):
        if told[more] < told[less]:
            yield f"{where}: {less} {told[less]} is above {more} {told[more]}"
    if told["inactive"] != told["reserved"] - told["active"]:
        yield f"{where}: inactive {told['inactive']} is not reserved {told['reserved']} less active {told['active']}"
