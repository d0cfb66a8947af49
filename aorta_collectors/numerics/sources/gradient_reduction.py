"""DistributedDataParallel's all-reduce of gradients, which runs in C++: bytes and times as its logger tells them.

The logger times the first ten iterations and then one in a hundred. On a host it is asked to time each, which costs
nothing that can be measured. On a device it is left as it is, since it would wait for the device's events; the total
follows from the mean of those that it has timed. Times come when the next forward begins: a span lies in the step
before the one that it is told in, and that of the last step is not known.
"""

from __future__ import annotations

import sys
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch import nn

if TYPE_CHECKING:
    from aorta_collectors.numerics.brick import Brick
    from aorta_collectors.numerics.engine.timeline import Timeline
    from aorta_collectors.observe.patches import Patches

_MODULE = "torch.nn.parallel.distributed"
_CLASS = "DistributedDataParallel"
_EVERY, _DEFAULT = 1, 100  # one iteration in so many is timed; torch's own default


class _Reducing:
    """What is known of one DistributedDataParallel.

    Attributes:
        is_below: Whether a root is known to have it. torchrec keeps some where no module shows them.
        iteration: Of the logger, when it was last read.
        num_missed: Passes before it was known to be used.
    """

    def __init__(self, model: Any) -> None:
        self.is_below = False
        self.is_asked_for_all = all(parameter.is_cpu for parameter in model.parameters())
        self.iteration = self.num_backwards = self.num_missed = 0
        self.mean_ns = 0
        self.last_start_ns = 0
        if self.is_asked_for_all:
            model._set_ddp_runtime_logging_sample_rate(_EVERY)


class GradientReduction:
    """Asks each DistributedDataParallel that is built meanwhile, or found in a root."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._known: weakref.WeakKeyDictionary[Any, _Reducing] = weakref.WeakKeyDictionary()
        self._roots: dict[int, weakref.WeakSet[Any]] = {}
        self._expected: weakref.WeakSet[Any] = weakref.WeakSet()
        self._epoch_ns = time.time_ns() - time.perf_counter_ns()
        self._calls = 0
        self._size = 0
        self._gone_ns = 0.0  # all that those took which are no more

    def stand(self, patches: Patches, guarded: Callable[..., None]) -> None:
        """Be told of each that is built.

        Args:
            guarded: Runs what is ours.
        """

        def around(original: Any) -> Any:
            def build(model: Any, *args: Any, **kwargs: Any) -> None:
                original(model, *args, **kwargs)
                if patches.stand:
                    guarded(self._met, model)

            return build

        kind = _kind()
        if kind is not None:
            patches.put(kind, "__init__", around)

    def root_left(self, brick: Brick) -> None:
        for model in [*self._below(brick), *self._hidden()]:
            # Unless gradients are accumulated, or not recorded at all, a backward pass will reduce them.
            if model.training and model.require_backward_grad_sync:
                self._expected.add(model)
                self._read(model)

    def backward_ended(self) -> None:
        expected, self._expected = list(self._expected), weakref.WeakSet()
        for model in expected:
            known = self._known[model]
            num_passes, known.num_missed = 1 + known.num_missed, 0
            known.num_backwards += num_passes
            told = model._get_ddp_logging_data()
            sizes = _sizes(told.get("rebuilt_bucket_sizes") or told.get("bucket_sizes"))
            self._calls += num_passes * len(sizes)
            self._size += num_passes * sum(sizes)

    def stop(self) -> None:
        for model, known in list(self._known.items()):
            if known.is_asked_for_all:
                model._set_ddp_runtime_logging_sample_rate(_DEFAULT)

    def totals(self) -> list[dict[str, Any]]:
        if not self._calls:
            return []
        total_ns = self._gone_ns + sum(known.mean_ns * known.num_backwards for known in list(self._known.values()))
        return [
            {
                "operation": "all_reduce",
                "calls": self._calls,
                "bytes": self._size,
                "total_us": total_ns / 1e3,
                "source": "ddp",
            }
        ]

    def _met(self, model: Any) -> _Reducing:
        known = self._known.get(model)
        if known is None:
            known = self._known[model] = _Reducing(model)
            weakref.finalize(model, self._gone, known).atexit = False
        return known

    def _gone(self, known: _Reducing) -> None:
        self._gone_ns += known.mean_ns * known.num_backwards

    def _below(self, brick: Brick) -> list[Any]:
        """Those that are modules of a root."""
        if brick.number not in self._roots:
            root, kind = brick.module(), _kind()
            modules = root.modules() if root is not None and kind is not None else ()
            found = [module for module in modules if isinstance(module, kind)]  # type: ignore[arg-type]
            for model in found:
                self._met(model).is_below = True
            self._roots[brick.number] = weakref.WeakSet(found)
        return list(self._roots[brick.number])

    def _hidden(self) -> list[Any]:
        """Those that no root shows, and that the root may have called: the logger tells where it times each call."""
        hidden = []
        for model, known in list(self._known.items()):
            iteration = 0 if known.is_below else model._get_ddp_logging_data().get("iteration", 0)
            if iteration > known.iteration or (iteration and not known.is_asked_for_all):
                hidden.append(model)
                # It does not know of a first forward before the second.
                known.num_missed = 0 if known.iteration else iteration
                known.iteration = iteration
        return hidden

    def _read(self, model: Any) -> None:
        """Take in what the logger tells of an earlier iteration."""
        known = self._known[model]
        told = model._get_ddp_logging_data()
        start_ns, duration_ns = told.get("backward_comm_time_start", 0), told.get("backward_comm_time", 0)
        known.mean_ns = told.get("avg_backward_comm_time", 0)
        if duration_ns > 0 and start_ns > known.last_start_ns:
            known.last_start_ns = start_ns
            sizes = _sizes(told.get("rebuilt_bucket_sizes") or told.get("bucket_sizes"))
            attributes = {"bytes": sum(sizes), "buckets": len(sizes), "source": "ddp"}
            began_ns = start_ns - self._epoch_ns
            self._timeline.add("all_reduce", "collective", began_ns, began_ns + duration_ns, attributes=attributes)


def _kind() -> type[nn.Module] | None:
    kind = getattr(sys.modules.get(_MODULE), _CLASS, None)
    return kind if isinstance(kind, type) else None


def _sizes(text: Any) -> list[int]:
    """Bytes of each bucket."""
    return [int(size) for size in text.split(",") if size.strip().isdigit()] if isinstance(text, str) else []
