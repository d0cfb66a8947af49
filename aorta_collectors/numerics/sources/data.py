"""DATA: the time in which a program waits for the next batch of its torch.utils.data.DataLoader."""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from aorta_collectors.import_watch import ImportWatch
from aorta_collectors.numerics.part import Part
from aorta_collectors.numerics.sources.named_calls import NamedCalls

if TYPE_CHECKING:
    from aorta_collectors.numerics.engine.timeline import Timeline

DATA = "DATA"
_MODULE = "torch.utils.data.dataloader"


class DataSource(Part):
    """Times the making of an iterator, which starts its workers, and each of its batches, with workers or without."""

    def __init__(self, timeline: Timeline, warn: Callable[[str], None]) -> None:
        self._calls = NamedCalls(timeline, warn)
        self._watch = ImportWatch(_MODULE, functools.partial(self._calls.guarded, self._stand))
        self._iterator: weakref.ref[Any] | None = None
        self._length: int | None = None

    def start(self) -> None:
        self._watch.start()

    def stop(self) -> None:
        self._watch.stop()
        self._calls.stop()

    def remaining(self) -> int | None:
        """Batches that the iterator which was asked last has left; None where no length is known."""
        iterator = self._iterator() if self._iterator is not None else None
        yielded = getattr(iterator, "_num_yielded", None)
        return None if self._length is None or not isinstance(yielded, int) else max(self._length - yielded, 0)

    def _stand(self) -> None:
        module = sys.modules[_MODULE]
        for kind, name in (("DataLoader", "__iter__"), ("_BaseDataLoaderIter", "__next__")):
            if isinstance(owner := getattr(module, kind, None), type):
                self._calls.put(owner, name, DATA, self._fetched if name == "__next__" else None)

    def _fetched(self, args: Sequence[Any], _batch: Any) -> None:
        iterator = args[0]
        if self._iterator is None or self._iterator() is not iterator:
            self._iterator = weakref.ref(iterator)
            self._length = _length_of(iterator)


def _length_of(iterator: Any) -> int | None:
    """Batches of an iterator. That of an iterable dataset is not asked: it would warn wherever its answer is wrong."""
    from torch.utils.data.dataloader import _DatasetKind

    if getattr(iterator, "_dataset_kind", None) != _DatasetKind.Map:
        return None
    try:
        return len(iterator._index_sampler)
    except Exception:  # a sampler of the program's may have no length
        return None
