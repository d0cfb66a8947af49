"""Numbers of batches, counted as they come in, and known again at each later place without a mark on the batch."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from torch import Tensor

V = TypeVar("V")

_MOST = 65_536  # living objects that are known at a time
_SHARED = 0  # the number of a tensor that several batches have in common
_DEPTH = 4


class WeakTable(Generic[V]):
    """Values for living objects, told apart by identity. Keeps no object alive, and nothing of one that is gone.

    Args:
        most: Objects it holds values for; beyond, the oldest is forgotten.
    """

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self._entries: dict[int, tuple[weakref.ref[Any], V]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: object) -> V | None:
        entry = self._entries.get(id(key))
        # An id is used again once its object is gone.
        return entry[1] if entry is not None and entry[0]() is key else None

    def put(self, key: object, value: V) -> bool:
        """Returns False for an object that can't be referenced weakly, such as a dict; nothing is kept then."""
        place, entries = id(key), self._entries

        def gone(ref: weakref.ref[Any]) -> None:
            entry = entries.get(place)
            if entry is not None and entry[0] is ref:
                del entries[place]

        try:
            ref = weakref.ref(key, gone)
        except TypeError:
            return False
        if place not in entries and len(entries) >= self._most:
            entries.pop(next(iter(entries)), None)
        entries[place] = (ref, value)
        return True


class BatchNumbers:
    """Gives each batch a number, 1, 2, ..., where it is first seen, and finds that number again later.

    A batch is known by itself. One that can't be referenced weakly (a dict, a tuple) or was built anew on its way
    (moved to a device, post-processed) is known by its tensors, and where those are new too, by the pipeline's
    context. A tensor that several batches have in common, such as a constant mask, identifies none.
    """

    def __init__(self) -> None:
        self.seen = 0
        self._batches: WeakTable[int] = WeakTable()
        self._tensors: WeakTable[int] = WeakTable()
        self._contexts: WeakTable[int] = WeakTable()

    def knows(self, batch: object) -> bool:
        """Whether `batch` itself has a number."""
        return self._batches.get(batch) is not None

    def number(self, batch: object, tensors: Sequence[Tensor], *, first: bool, context: object = None) -> int | None:
        """The number of `batch`, or None where it is unknown.

        Args:
            batch: The batch, or None where only tensors of it are at hand.
            tensors: What is followed in it.
            first: Whether an unknown batch comes in here, and gets the next number.
            context: torchrec's context of the batch, if it has one of its own.
        """
        number = self._batches.get(batch) or self._by_tensors(tensors, first)
        if number is None:
            number = self._contexts.get(context)
        if number is None and first:
            self.seen += 1
            number = self.seen
        if number is not None:
            self._remember(number, batch, tensors, context)
        return number

    def _by_tensors(self, tensors: Sequence[Tensor], first: bool) -> int | None:
        numbers = {self._tensors.get(tensor) for tensor in tensors} - {_SHARED}
        if not first:
            # Part of a batch may have been replaced by now.
            numbers.discard(None)
        return numbers.pop() if len(numbers) == 1 else None

    def _remember(self, number: int, batch: object, tensors: Sequence[Tensor], context: object) -> None:
        self._batches.put(batch, number)
        if context is not None:
            self._contexts.put(context, number)
        for tensor in tensors:
            earlier = self._tensors.get(tensor)
            if earlier is None:
                self._tensors.put(tensor, number)
            elif earlier != number:
                self._tensors.put(tensor, _SHARED)


def weaken(value: Any, depth: int = _DEPTH) -> Callable[[], Any]:
    """A function that returns `value` as long as it lives, None after.

    Of a list, tuple or mapping, which can't be referenced weakly, it returns a list or dict of what still lives of
    its contents.
    """
    try:
        return weakref.ref(value)
    except TypeError:
        pass
    if depth > 0 and isinstance(value, Mapping):
        parts = {key: weaken(part, depth - 1) for key, part in value.items()}
        return lambda: {key: part() for key, part in parts.items()}
    if depth > 0 and isinstance(value, (list, tuple)):
        elements = [weaken(part, depth - 1) for part in value]
        return lambda: [element() for element in elements]
    return lambda: None
