"""Which operations and kernels ran inside a brick: as rows of its line, and as spans."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from aorta_collectors.numerics.brick import Timing
from aorta_collectors.numerics.profile.escalation.profiled import Operation
from aorta_collectors.numerics.profile.escalation.ranges import Ranges
from aorta_collectors.numerics.spans.span import KERNEL_LAUNCH

Key = tuple[str, str]  #: path of a module, and "forward" or "backward"

_MOST_ROWS = 20
_MOST_SPANS = 1000


class SpanSink(Protocol):
    """Where spans go: the timeline."""

    def add(
        self,
        name: str,
        kind: str,
        start_ns: int,
        end_ns: int,
        layer: str = "",
        direction: str = "",
        attributes: Mapping[str, Any] | None = None,
    ) -> object: ...


def inside(operations: Iterable[Operation], timings: Iterable[Timing]) -> list[Operation]:
    """Those that the host came by within one of these calls of modules."""
    ranges = Ranges((one.start_ns, one.end_ns) for one in timings)
    return [operation for operation in operations if operation.at_ns in ranges]


def rows(operations: Iterable[Operation]) -> list[dict[str, Any]]:
    """Of a line (schemas/numerics.escalation.json, `kernels`): by name, the longest first, at most 20."""
    by_name: dict[str, dict[str, Any]] = {}
    for operation in operations:
        row = by_name.setdefault(
            operation.name, {"name": operation.name, "calls": 0, "self_us": 0.0, "device_us": None}
        )
        row["calls"] += 1
        row["self_us"] += operation.self_us
        if operation.device_us is not None:
            row["device_us"] = (row["device_us"] or 0.0) + operation.device_us
    longest = sorted(by_name.values(), key=lambda row: max(row["self_us"], row["device_us"] or 0.0), reverse=True)
    for row in longest[:_MOST_ROWS]:
        row["self_us"] = round(row["self_us"], 3)
        row["device_us"] = None if row["device_us"] is None else round(row["device_us"], 3)
    return longest[:_MOST_ROWS]


def add_spans(sink: SpanSink, found: Mapping[Key, Sequence[Operation]]) -> None:
    """Spans of kind "kernel": the longest 1,000 of a step, each for the innermost brick that it ran in.

    What launches something on a device has the named step's name, KERNEL_LAUNCH, and the call's as an attribute.
    """
    owners: dict[Operation, Key] = {}
    # A brick inside another one has fewer of them.
    for key, operations in sorted(found.items(), key=lambda item: len(item[1])):
        for operation in operations:
            owners.setdefault(operation, key)
    longest = sorted(owners, key=lambda operation: operation.end_ns - operation.start_ns, reverse=True)[:_MOST_SPANS]
    for operation in sorted(longest, key=lambda operation: (operation.start_ns, -operation.end_ns)):
        layer, direction = owners[operation]
        name = KERNEL_LAUNCH if operation.is_launch else operation.name
        attributes: dict[str, Any] = {"on": "device" if operation.is_kernel else "host"}
        if operation.is_launch:
            attributes["operation"] = operation.name
        sink.add(name, "kernel", operation.start_ns, operation.end_ns, layer, direction, attributes)
