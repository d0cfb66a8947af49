"""CUDA graphs: the points that lie in a captured stretch come again at each of its replays."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from aorta_collectors.observe.lifecycle.listener import GraphListener
from aorta_collectors.observe.lifecycle.telling import Telling
from aorta_collectors.observe.lifecycle.training import TrainingPoints
from aorta_collectors.observe.patches import Patches


class _Held(NamedTuple):
    """What a graph holds.

    Attributes:
        forwards: Calls of models.
        passes: Backward passes.
        stepped: Optimizer steps: the parameters of each, by id().
    """

    number: int
    forwards: int
    passes: int
    stepped: list[frozenset[int]]


class GraphPoints:
    """Stands around the methods of torch.cuda.CUDAGraph, which whatever records graphs goes through.

    Args:
        listener: Told in addition, or None.
        is_running: Whether a model's call that is seen, or a backward pass, is going on. A replay within is part of it.
        begin_step: Begins a step.
        is_elsewhere: Whether this is a fork of the observed process.
    """

    def __init__(
        self,
        telling: Telling,
        training: TrainingPoints,
        listener: GraphListener | None,
        is_running: Callable[[], bool],
        begin_step: Callable[[], None],
        is_elsewhere: Callable[[], bool],
    ) -> None:
        self._telling = telling
        self._training = training
        self._listener = listener
        self._is_running = is_running
        self._begin_step = begin_step
        self._is_elsewhere = is_elsewhere
        self._held: weakref.WeakKeyDictionary[Any, _Held] = weakref.WeakKeyDictionary()
        self._gone: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        self._patches = Patches()
        self._number = 0
        self._forwards = 0
        telling.tells_captures = listener is not None

    def start(self) -> None:
        graph = torch.cuda.CUDAGraph
        self._patches.put(graph, "capture_begin", self._around_begin)
        self._patches.put(graph, "capture_end", self._around_end)
        self._patches.put(graph, "replay", self._around_replay)

    def stop(self) -> None:
        self._patches.undo()
        self._telling.is_capturing = False

    def model_called(self) -> None:
        """A model is called while a graph is captured."""
        self._forwards += 1

    @property
    def _is_on(self) -> bool:
        return self._patches.stand and not self._is_elsewhere()

    def _around_begin(self, original: Any) -> Any:
        def capture_begin(graph: Any, *args: Any, **kwargs: Any) -> Any:
            if self._is_on:
                self._telling.failures.guarded(self._begins, graph)
            try:
                return original(graph, *args, **kwargs)
            except BaseException:
                self._telling.is_capturing = False
                raise

        return capture_begin

    def _begins(self, graph: Any) -> None:
        self._held.pop(graph, None)
        self._number += 1
        self._forwards = 0
        self._training.take()
        gone = self._gone.pop(graph, None)
        if gone is not None:
            gone()
        if self._listener is not None:
            gone = weakref.finalize(graph, self._telling.failures.guarded, self._listener.forgotten, self._number)
            gone.atexit = False
            self._gone[graph] = gone
            self._listener.capture_began(self._number)
        self._telling.is_capturing = True

    def _around_end(self, original: Any) -> Any:
        def capture_end(graph: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                return original(graph, *args, **kwargs)
            finally:
                if self._is_on and self._telling.is_capturing:
                    self._telling.failures.guarded(self._ended, graph)

        return capture_end

    def _ended(self, graph: Any) -> None:
        self._telling.is_capturing = False
        passes, stepped = self._training.take()
        self._training.num_steps -= len(stepped)  # computed at replays alone
        self._held[graph] = _Held(self._number, self._forwards, passes, stepped)
        if self._listener is not None:
            self._listener.capture_ended(self._number)

    def _around_replay(self, original: Any) -> Any:
        def replay(graph: Any, *args: Any, **kwargs: Any) -> Any:
            held = self._held.get(graph) if self._is_on else None
            if held is None:
                return original(graph, *args, **kwargs)
            cost, guarded = self._telling.cost, self._telling.failures.guarded
            is_inside = self._is_running()
            begins = bool(held.forwards) and not is_inside
            if begins:
                guarded(self._begin_step)
                cost.timed(guarded, self._before)
            result = original(graph, *args, **kwargs)
            cost.timed(guarded, self._replayed, held, begins, is_inside)
            return result

        return replay

    def _before(self) -> None:
        self._telling.before_forward(is_compiled=False)

    def _replayed(self, held: _Held, begins: bool, is_inside: bool) -> None:
        if self._listener is not None:
            self._telling.tell(self._listener.replayed, held.number)
        if begins:
            self._telling.after_forward()
        if not (is_inside or self._telling.is_silent):
            self._training.again(held.passes, held.stepped)
