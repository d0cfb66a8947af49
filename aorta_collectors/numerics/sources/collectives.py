"""Collectives: calls of torch.distributed as spans, and what they come to in the summary.

Each has the bytes of this rank's tensors, its group, and its number among the collectives of that group that were seen,
which is the same on all its ranks. One that is called with async_op ends when its Work has been waited for. Where
nobody has, or the tensors are on a device, where even a call that returns is only under way, the time is that of the
call, and the attribute `timed` says so: "wait", "call" or "launch".

Not seen are: functions that the program had got by name before it was observed (from torch.distributed import
all_reduce), methods of a process group, collectives of compiled code and of DTensor (torch.ops._c10d_functional), and
point-to-point messages. DistributedDataParallel's own are told apart (`gradient_reduction`).
"""

from __future__ import annotations

import functools
import inspect
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from aorta_collectors.import_watch import ImportWatch
from aorta_collectors.numerics.engine.guard import Guard
from aorta_collectors.numerics.part import Part
from aorta_collectors.numerics.sources.collective_calls import (
    OPERATIONS,
    Operation,
    bytes_of,
    group_of,
    tensors_of,
)
from aorta_collectors.numerics.sources.gradient_reduction import GradientReduction
from aorta_collectors.observe.patches import Patches

if TYPE_CHECKING:
    from aorta_collectors.numerics.brick import Brick
    from aorta_collectors.numerics.engine.timeline import Timeline

COLLECTIVE = "collective"
_MODULE = "torch.distributed.distributed_c10d"
_PUBLIC = "torch.distributed"
# Where torch's compiler looks up what to put in the place of a collective, by the function that it meets.
_COMPILED = "torch.distributed._functional_collectives"
_REMAPS = "traceable_collective_remaps"
_DEFAULT_GROUP = "default"
_MOST_PENDING = 10_000


class _Call(NamedTuple):
    """A collective that was called."""

    operation: str
    size: int
    attributes: dict[str, Any]
    began_ns: int
    returned_ns: int


@dataclass
class _Total:
    calls: int = 0
    size: int = 0
    duration_ns: int = 0


class CollectiveSource(Part):
    """Stands around the functions, and around Work.wait."""

    def __init__(self, timeline: Timeline, warn: Callable[[str], None]) -> None:
        self._timeline = timeline
        self._guarded = Guard(timeline, warn)
        self._patches = Patches()
        self._watch = ImportWatch(_MODULE, functools.partial(self._guarded, self._stand))
        self._compiled = ImportWatch(_COMPILED, functools.partial(self._guarded, self._tell_compiler))
        self._thread = threading.local()
        self._sequence: Counter[str] = Counter()
        self._totals: dict[str, _Total] = {}
        # By id() of the Work, which is let go of when the program does.
        self._pending: dict[int, tuple[weakref.ref[Any], _Call]] = {}
        self._reduction = GradientReduction(timeline)

    def start(self) -> None:
        self._watch.start()
        self._compiled.start()

    def stop(self) -> None:
        self._watch.stop()
        self._compiled.stop()
        remaps = self._remaps()
        for _, ours in self._functions:
            remaps.pop(ours, None)
        self._patches.undo()
        self._reduction.stop()
        for key in list(self._pending):
            self._never_waited(key)

    def wants(self, brick: Brick) -> bool:
        return brick.is_root

    def root_left(self, brick: Brick, result: Any) -> None:
        self._reduction.root_left(brick)

    def backward_ended(self) -> None:
        self._reduction.backward_ended()

    def fields(self) -> Mapping[str, Any]:
        seen = [
            {
                "operation": operation,
                "calls": total.calls,
                "bytes": total.size,
                "total_us": total.duration_ns / 1e3,
                "source": "call",
            }
            for operation, total in self._totals.items()
        ]
        return {"collectives": seen + self._reduction.totals()}

    def _stand(self) -> None:
        public = [sys.modules[_PUBLIC]]  # which has taken the functions over
        for name, operation in OPERATIONS.items():
            self._patches.put(sys.modules[_MODULE], name, functools.partial(self._around_call, operation), public)
        work = getattr(torch._C._distributed_c10d, "Work", None)
        if isinstance(work, type):
            self._patches.put(work, "wait", self._around_wait)
        self._reduction.stand(self._patches, self._guarded)

    @property
    def _functions(self) -> list[tuple[Any, Any]]:
        """Those of the module, and ours."""
        return [pair for pair in self._patches.pairs if inspect.isfunction(pair[0])]

    def _remaps(self) -> dict[Any, Any]:
        remaps = getattr(sys.modules.get(_COMPILED), _REMAPS, None)
        return remaps if isinstance(remaps, dict) else {}

    def _tell_compiler(self) -> None:
        """Have compiled code be what it would be: ours is the same collective to the compiler as the original."""
        remaps = self._remaps()
        for original, ours in self._functions:
            known = remaps.get(original, remaps.get(ours))
            if known is not None:
                remaps[original] = remaps[ours] = known

    def _around_call(self, operation: Operation, original: Any) -> Any:
        def collective(*args: Any, **kwargs: Any) -> Any:
            is_here = self._guarded.is_here and self._patches.stand
            if not is_here or getattr(self._thread, "is_inside", False):
                return original(*args, **kwargs)
            self._thread.is_inside = True
            began_ns = perf_counter_ns()
            try:
                work = original(*args, **kwargs)
            finally:
                self._thread.is_inside = False
            self._guarded(self._called, operation, args, kwargs, work, began_ns, perf_counter_ns())
            return work

        return collective

    def _called(
        self,
        operation: Operation,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        work: Any,
        began_ns: int,
        returned_ns: int,
    ) -> None:
        tensors = tensors_of(operation, args, kwargs)
        group = _name_of(group_of(operation, args, kwargs))
        sequence = self._sequence[group]
        self._sequence[group] += 1
        size = bytes_of(tensors)
        attributes = {"bytes": size, "group": group, "sequence": sequence}
        if any(not tensor.is_cpu for tensor in tensors):
            attributes["timed"] = "launch"
        call = _Call(operation.name, size, attributes, began_ns, returned_ns)
        if isinstance(work, torch._C._distributed_c10d.Work) and len(self._pending) < _MOST_PENDING:
            key = id(work)
            self._pending[key] = (weakref.ref(work, lambda _: self._guarded(self._never_waited, key)), call)
        else:
            self._ended(call, returned_ns)

    def _around_wait(self, original: Any) -> Any:
        def wait(work: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(work, *args, **kwargs)
            if self._pending and id(work) in self._pending and self._patches.stand:
                self._guarded(self._waited, work, perf_counter_ns())
            return result

        return wait

    def _waited(self, work: Any, ended_ns: int) -> None:
        found = self._pending.pop(id(work), None)
        if found is not None and self._guarded.is_here:
            call = found[1]
            self._ended(call._replace(attributes={"timed": "wait", **call.attributes}), ended_ns)

    def _never_waited(self, key: int) -> None:
        found = self._pending.pop(key, None)
        if found is not None and self._guarded.is_here:
            call = found[1]
            self._ended(call._replace(attributes={"timed": "call", **call.attributes}), call.returned_ns)

    def _ended(self, call: _Call, ended_ns: int) -> None:
        total = self._totals.setdefault(call.operation, _Total())
        total.calls += 1
        total.size += call.size
        total.duration_ns += ended_ns - call.began_ns
        self._timeline.add(call.operation, COLLECTIVE, call.began_ns, ended_ns, attributes=call.attributes)


def _name_of(group: Any) -> str:
    """Of a process group, the same on all its ranks."""
    default = torch.distributed.group.WORLD
    if group is None or group is default:
        return _DEFAULT_GROUP
    name = getattr(group, "group_name", None)
    return name if isinstance(name, str) and name else _DEFAULT_GROUP
