"""SAMPLE: what transformers' generate does between two calls of its model: choosing the next token, and the rest."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from aorta_collectors.import_watch import ImportWatch
from aorta_collectors.numerics.engine.guard import Guard
from aorta_collectors.numerics.part import Part
from aorta_collectors.observe.patches import Patches

if TYPE_CHECKING:
    from aorta_collectors.numerics.brick import Brick
    from aorta_collectors.numerics.engine.timeline import Timeline

SAMPLE = "SAMPLE"
_MODULE = "transformers.generation.utils"
_CLASS = "GenerationMixin"
_TOLD = ("do_sample", "temperature", "top_k", "top_p")


@dataclass
class _Generating:
    """A generate() that is under way on a thread.

    Attributes:
        model: Whose calls it waits for.
        settings: What the tokens are chosen by, as far as the call tells.
        since_ns: When the model's last call ended; None before the first, and while one runs.
        num_sequences: For which a token is chosen.
    """

    model: Any
    settings: dict[str, Any]
    since_ns: int | None = None
    num_sequences: int | None = None


class GenerationSource(Part):
    """Times it. A generate() within another one, as in assisted decoding, counts with the outer one."""

    def __init__(self, timeline: Timeline, warn: Callable[[str], None]) -> None:
        self._timeline = timeline
        self._guarded = Guard(timeline, warn)
        self._patches = Patches()
        self._watch = ImportWatch(_MODULE, functools.partial(self._guarded, self._stand))
        self._thread = threading.local()

    def start(self) -> None:
        self._watch.start()

    def stop(self) -> None:
        self._watch.stop()
        self._patches.undo()

    def wants(self, brick: Brick) -> bool:
        kind = getattr(sys.modules.get(_MODULE), _CLASS, None)
        return isinstance(kind, type) and isinstance(brick.module(), kind)

    def entered(self, brick: Brick, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None) -> None:
        generating = self._of_this_thread()
        if generating is not None and brick.module() is generating.model:
            self._chosen(generating)

    def left(self, brick: Brick, args: tuple[Any, ...], result: Any) -> None:
        generating = self._of_this_thread()
        if generating is not None and brick.module() is generating.model:
            generating.since_ns = perf_counter_ns()
            logits = getattr(result, "logits", None)
            generating.num_sequences = int(logits.shape[0]) if logits is not None else None

    def _of_this_thread(self) -> _Generating | None:
        return getattr(self._thread, "generating", None)

    def _chosen(self, generating: _Generating) -> None:
        """The model is called once more, or generate() has ended."""
        since_ns, generating.since_ns = generating.since_ns, None
        if since_ns is not None:
            attributes = {**generating.settings, "tokens": generating.num_sequences}
            self._timeline.add(SAMPLE, "phase", since_ns, perf_counter_ns(), attributes=attributes)

    def _stand(self) -> None:
        kind = getattr(sys.modules[_MODULE], _CLASS, None)
        if isinstance(kind, type):
            self._patches.put(kind, "generate", self._around_generate)

    def _around_generate(self, original: Any) -> Any:
        def generate(model: Any, *args: Any, **kwargs: Any) -> Any:
            if not self._patches.stand or self._of_this_thread() is not None or not self._guarded.is_here:
                return original(model, *args, **kwargs)
            self._guarded(self._begin, model, args, kwargs)
            try:
                return original(model, *args, **kwargs)
            finally:
                self._guarded(self._end)

        return generate

    def _begin(self, model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        given = kwargs.get("generation_config") or (args[1] if len(args) > 1 else None)
        config = given if given is not None else getattr(model, "generation_config", None)
        settings = {name: kwargs.get(name, getattr(config, name, None)) for name in _TOLD}
        known = {name: value for name, value in settings.items() if isinstance(value, (bool, int, float))}
        self._thread.generating = _Generating(model, known)

    def _end(self) -> None:
        generating, self._thread.generating = self._of_this_thread(), None
        if generating is not None:
            self._chosen(generating)
