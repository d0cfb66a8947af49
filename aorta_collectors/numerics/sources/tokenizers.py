"""TOKENIZE and DECODE: text to token ids and back, by the tokenizers of transformers."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from aorta_collectors.import_watch import ImportWatch
from aorta_collectors.numerics.part import Part
from aorta_collectors.numerics.sources.named_calls import NamedCalls

if TYPE_CHECKING:
    from aorta_collectors.numerics.engine.timeline import Timeline

TOKENIZE, DECODE = "TOKENIZE", "DECODE"
# Module and class of what all tokenizers inherit from, and of those that have methods of their own.
_CLASSES = (
    ("transformers.tokenization_utils_base", "PreTrainedTokenizerBase"),
    ("transformers.tokenization_mistral_common", "MistralCommonBackend"),  # transformers 5
    ("transformers.tokenization_mistral_common", "MistralCommonTokenizer"),  # transformers 4
)
_ENCODING = ("__call__", "encode", "encode_plus", "batch_encode_plus")  # the last two until transformers 4
_DECODING = ("decode", "batch_decode")


class TokenizerSource(Part):
    """Times calls of tokenizers once transformers is imported."""

    def __init__(self, timeline: Timeline, warn: Callable[[str], None]) -> None:
        self._calls = NamedCalls(timeline, warn)
        self._watches = [
            ImportWatch(module, functools.partial(self._calls.guarded, self._stand, module, kind))
            for module, kind in _CLASSES
        ]

    def start(self) -> None:
        for watch in self._watches:
            watch.start()

    def stop(self) -> None:
        for watch in self._watches:
            watch.stop()
        self._calls.stop()

    def _stand(self, module: str, kind: str) -> None:
        owner = getattr(sys.modules[module], kind, None)
        if not isinstance(owner, type):
            return
        for name in _ENCODING:
            self._calls.put(owner, name, TOKENIZE, _encoded)
        for name in _DECODING:
            self._calls.put(owner, name, DECODE, _decoded)


def _encoded(_args: Sequence[Any], result: Any) -> dict[str, int] | None:
    return _tokens(result.get("input_ids") if isinstance(result, Mapping) or hasattr(result, "input_ids") else result)


def _decoded(args: Sequence[Any], _result: Any) -> dict[str, int] | None:
    return _tokens(args[1]) if len(args) > 1 else None


def _tokens(ids: Any) -> dict[str, int] | None:
    """How many token ids there are in one id, a list of them, lists of lists, or an array or tensor of any kind."""
    if isinstance(ids, int):
        return {"tokens": 1}
    if isinstance(ids, (list, tuple)):
        return {"tokens": sum(len(row) if isinstance(row, (list, tuple)) else _size(row) for row in ids)}
    shape = getattr(ids, "shape", None)
    return None if shape is None else {"tokens": _size(ids)}


def _size(value: Any) -> int:
    size = 1
    for length in getattr(value, "shape", ()):
        size *= int(length)
    return size
