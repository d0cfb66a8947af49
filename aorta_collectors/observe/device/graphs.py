"""CUDA graphs: hooks run once, while a graph is captured, and what they queued runs again at every replay.

`torch.cuda.graph`, `make_graphed_callables` and what torch.compile records all go through three methods of
torch.cuda.CUDAGraph, which are wrapped while the watch is on.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any, Protocol

import torch

from aorta_collectors.observe.device.captured import Capture
from aorta_collectors.observe.device.rows import DeviceRows, SealedRows


class GraphSink(Protocol):
    """Who is told of graphs. A graph is known by the number of its capture."""

    def capture_begins(self, number: int) -> None:
        """Nothing is captured yet: the last moment to seal rows. What DeviceRows.queue returns next is of the graph."""

    def capture_ended(self, number: int) -> None:
        """The hooks of the graph's code have run. What they saw holds no results yet: those come with the replays."""

    def replayed(self, number: int, rows: SealedRows) -> None:
        """A replay has been queued on the device: `rows` will be its results, numbered as they were queued."""

    def forgotten(self, number: int) -> None:
        """The graph is gone, or has been captured anew: it will not be replayed."""


class GraphWatch:
    """Has the rows that were captured with a graph delivered after each of its replays.

    Args:
        failed: Told of an error of ours; the program goes on as if nothing had been there.
        graph: The class whose methods are wrapped.
        current: Gives the current device.
    """

    def __init__(
        self,
        rows: DeviceRows,
        sink: GraphSink,
        failed: Callable[[Exception], None],
        *,
        graph: type[Any] = torch.cuda.CUDAGraph,
        current: Callable[[], torch.device] = lambda: torch.device("cuda", torch.cuda.current_device()),
    ) -> None:
        self._rows = rows
        self._sink = sink
        self._failed = failed
        self._graph = graph
        self._current = current
        self._captures: weakref.WeakKeyDictionary[Any, Capture] = weakref.WeakKeyDictionary()
        self._originals: dict[str, Any] = {}
        self._wrappers: dict[str, Any] = {}

    def start(self) -> None:
        for name in ("capture_begin", "capture_end", "replay"):
            self._originals[name] = getattr(self._graph, name)
            self._wrappers[name] = self._wrapped(name, self._originals[name])
            setattr(self._graph, name, self._wrappers[name])

    def stop(self) -> None:
        """Take the wrappers off. Graphs keep their kernels, and with them their rows, until they are gone."""
        for name, wrapper in self._wrappers.items():
            # Somebody who has wrapped ours keeps it, and it does nothing any more.
            if self._graph.__dict__.get(name) is wrapper:
                setattr(self._graph, name, self._originals[name])
        self._wrappers.clear()
        self._rows.end_capture()

    def _wrapped(self, name: str, original: Any) -> Any:
        before: Callable[[Any], None] = {"capture_begin": self._begins, "replay": self._replays}.get(name, _nothing)
        after: Callable[[Any], None] = {"capture_end": self._ended, "replay": self._replayed}.get(name, _nothing)

        @functools.wraps(original)
        def wrapper(graph: Any, *args: Any, **kwargs: Any) -> Any:
            if name not in self._wrappers:
                return original(graph, *args, **kwargs)
            self._guarded(before, graph)
            try:
                result = original(graph, *args, **kwargs)
            except BaseException:
                if name != "replay":
                    self._guarded(self._ended, graph)
                raise
            self._guarded(after, graph)
            return result

        return wrapper

    def _guarded(self, function: Callable[[Any], None], graph: Any) -> None:
        try:
            function(graph)
        except Exception as error:
            self._failed(error)

    def _begins(self, graph: Any) -> None:
        self._forget(graph)
        self._rows.end_capture()  # of one that was never ended
        number = self._rows.next_capture
        self._sink.capture_begins(number)
        capture = self._rows.begin_capture(self._current())
        if capture is not None:
            self._captures[graph] = capture
            weakref.finalize(graph, self._gone, capture.number).atexit = False

    def _ended(self, graph: Any) -> None:
        self._rows.end_capture()
        capture = self._captures.get(graph)
        if capture is not None:
            if not capture.entries:
                del self._captures[graph]  # nobody looked at anything in there, as in what torch.compile records
            self._sink.capture_ended(capture.number)

    def _replays(self, graph: Any) -> None:
        capture = self._captures.get(graph)
        if capture is not None:
            self._rows.about_to_replay(capture)

    def _replayed(self, graph: Any) -> None:
        capture = self._captures.get(graph)
        rows = self._rows.replayed(capture) if capture is not None else None
        if capture is not None and rows is not None:
            self._sink.replayed(capture.number, rows)

    def _forget(self, graph: Any) -> None:
        capture = self._captures.pop(graph, None)
        if capture is not None:
            self._sink.forgotten(capture.number)

    def _gone(self, number: int) -> None:
        try:
            self._sink.forgotten(number)
        except Exception as error:
            self._failed(error)


def _nothing(graph: Any) -> None:
    """No part of the watch's at this point."""
