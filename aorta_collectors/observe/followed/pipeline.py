"""Noticing a batch at the stages of torchrec's training pipelines: wrappers around their stage methods.

TrainPipelineSparseDist and every subclass that overrides a stage are wrapped. A wrapper calls the original first and
always, and what it raises, such as StopIteration, passes through as it is.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from types import FunctionType
from typing import Any, Protocol

from aorta_collectors.import_watch import ImportWatch
from aorta_collectors.observe.followed.numbering import WeakTable, weaken

_MODULE = "torchrec.distributed.train_pipeline.train_pipelines"
_PIPELINE = "TrainPipelineSparseDist"
_CONTEXT = "TrainPipelineContext"

COPY, SPARSE_START, SPARSE_WAIT = "copy", "sparse_start", "sparse_wait"
# The streams on which the stages queue their work; None where a pipeline uses the current one.
_STREAMS = {COPY: "_memcpy_stream", SPARSE_START: "_data_dist_stream", SPARSE_WAIT: "_data_dist_stream"}
# In the order in which a batch passes them. The last is what pipelines of before 1.0 call.
_STAGES = (
    ("copy_batch_to_gpu", COPY),
    ("inplace_copy_batch_to_gpu", COPY),
    ("start_sparse_data_dist", SPARSE_START),
    ("wait_sparse_data_dist", SPARSE_WAIT),
    ("_wait_sparse_data_dist", SPARSE_WAIT),
)


class Reached(Protocol):
    def __call__(self, phase: str, batch: Any, context: Any, stream: Any, first: bool) -> None:
        """A batch has passed the stage `phase`; a Future in its place is a batch that isn't there yet.

        Args:
            first: Whether a batch that isn't known yet comes in here: an earlier stage would have been seen.
            context: The object that goes with this batch alone through all stages, or None.
            stream: Where the stage has queued its work; None stands for the current stream.
        """


class StageWatch:
    """Reports each batch at each stage, between `start` and `stop`, once torchrec has been imported.

    Attributes:
        installed: Whether wrappers stand, or stood until `stop`.
        first_phase: The earliest stage that is wrapped.
    """

    def __init__(self, reached: Reached, failed: Callable[[Exception], None], log: Callable[[str], None]) -> None:
        self.installed = False
        self.first_phase: str | None = None
        self._reached = reached
        self._failed = failed
        self._log = log
        self._active = False
        self._watch: ImportWatch | None = None
        self._originals: list[tuple[type, str, Any, Any]] = []
        self._running: set[tuple[int, int, str]] = set()
        # What was last copied or started with a context, or in a pipeline that has none. Held weakly.
        self._batches: WeakTable[Callable[[], Any]] = WeakTable()
        self._built: WeakTable[bool] = WeakTable()

    def start(self) -> None:
        self._active = True
        self._watch = ImportWatch(_MODULE, self._imported)
        self._watch.start()

    def stop(self) -> None:
        self._active = False
        if self._watch is not None:
            self._watch.stop()
        for kind, name, original, ours in reversed(self._originals):
            # Somebody may have wrapped the method after us: theirs stays, and ours falls silent.
            if vars(kind).get(name) is ours:
                setattr(kind, name, original)
        self._originals = []

    def _imported(self) -> None:
        try:
            self._install()
        except Exception as error:
            self._failed(error)

    def _install(self) -> None:
        pipeline = getattr(sys.modules[_MODULE], _PIPELINE, None)
        phases = [phase for name, phase in _STAGES if hasattr(pipeline, name)]
        if not isinstance(pipeline, type) or not phases:
            self._log(f"{_PIPELINE} of this torchrec has none of the known stage methods: nothing is read at stages")
            return
        self._wrap_tree(pipeline)
        # A subclass may be defined later: it is known when its first pipeline is built.
        self._replace(pipeline, "__init__", self._wrapped_init(pipeline, vars(pipeline)["__init__"]))
        self.installed = True
        self.first_phase = phases[0]

    def _wrap_tree(self, kind: type) -> None:
        self._wrap_stages(kind)
        subclasses: list[type] = kind.__subclasses__()
        for subclass in subclasses:
            self._wrap_tree(subclass)

    def _wrap_stages(self, kind: type) -> None:
        for name, phase in _STAGES:
            method = vars(kind).get(name)
            if isinstance(method, FunctionType) and not any(ours is method for *_, ours in self._originals):
                self._replace(kind, name, self._wrapped_stage(phase, method))

    def _replace(self, kind: type, name: str, ours: Any) -> None:
        self._originals.append((kind, name, vars(kind)[name], ours))
        setattr(kind, name, ours)

    def _wrapped_init(self, pipeline: type, original: Any) -> Any:
        @functools.wraps(original)
        def init(instance: Any, *args: Any, **kwargs: Any) -> None:
            if self._active:
                self._built.put(instance, True)
                for kind in type(instance).__mro__:
                    if issubclass(kind, pipeline):
                        self._wrap_stages(kind)
            original(instance, *args, **kwargs)

        return init

    def _wrapped_stage(self, phase: str, original: Any) -> Any:
        @functools.wraps(original)
        def stage(pipeline: Any, *args: Any, **kwargs: Any) -> Any:
            # An override that calls the method it overrides passes a stage once.
            running = (threading.get_ident(), id(pipeline), phase)
            if not self._active or running in self._running:
                return original(pipeline, *args, **kwargs)
            self._running.add(running)
            try:
                result = original(pipeline, *args, **kwargs)
            finally:
                self._running.discard(running)
            try:
                self._passed(phase, pipeline, args, kwargs, result)
            except Exception as error:
                self._failed(error)
            return result

        return stage

    def _passed(self, phase: str, pipeline: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> None:
        if phase == COPY:
            batch, context = _copied(pipeline, result)
        elif phase == SPARSE_START:
            given = [*args, *kwargs.values()]
            context = next((value for value in given if _is_context(value)), None)
            batch = args[0] if args else kwargs.get("batch")
        else:
            batch, context = self._waited_for(pipeline, args, kwargs)
        if batch is None:
            return
        if phase != SPARSE_WAIT and not isinstance(batch, Future):
            self._batches.put(pipeline if context is None else context, weaken(batch))
        own_context = None if context is getattr(pipeline, "_context", None) else context
        # Pipelines for evaluation have a thread that copies; their batches are first seen at the next stage.
        first = phase == self.first_phase or (phase == SPARSE_START and self._built.get(pipeline) is not None)
        self._reached(phase, batch, own_context, getattr(pipeline, _STREAMS[phase], None), first)

    def _waited_for(self, pipeline: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, Any]:
        """The batch that was waited for, and its context, which torchrec hands over; earlier, the batch or nothing."""
        given = [value for value in (*args, *kwargs.values()) if value is not None]
        context = next((value for value in given if _is_context(value)), None)
        if context is None and given:
            return given[0], None
        if context is None:
            context = getattr(pipeline, "_context", None)
        batch = _queued(pipeline, context)
        if batch is None:
            remembered = self._batches.get(context) or self._batches.get(pipeline)
            batch = remembered() if remembered is not None else None
        if batch is None and context is getattr(pipeline, "_context", None):
            batch = getattr(pipeline, "_batch_ip1", None)
            batch = getattr(pipeline, "_batch_i", None) if batch is None else batch
        return batch, context


def _copied(pipeline: Any, result: Any) -> tuple[Any, Any]:
    """(batch, context) of what the copy stage returned: both, or in pipelines of before 1.0 the batch alone."""
    pair = type(result) is tuple and len(result) == 2 and hasattr(pipeline, "contexts")
    if pair or (type(result) is tuple and any(_is_context(part) for part in result)):
        return result[0], next((part for part in result[1:] if _is_context(part)), None)
    return result, None


def _queued(pipeline: Any, context: Any) -> Any:
    """The batch that stands in the pipeline's queue where its context stands in the queue of contexts, or None."""
    contexts, batches = getattr(pipeline, "contexts", None), getattr(pipeline, "batches", None)
    if not isinstance(contexts, deque) or not isinstance(batches, deque):
        return None
    # By iteration: asking torchrec's own kind of deque for an element would wait for it.
    for candidate, batch in zip(contexts, batches, strict=False):
        if candidate is context:
            return None if isinstance(batch, Future) else batch
    return None


def _is_context(value: Any) -> bool:
    return any(base.__name__ == _CONTEXT for base in type(value).__mro__)
