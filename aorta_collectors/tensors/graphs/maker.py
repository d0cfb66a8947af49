"""Which slots a CUDA graph gets: those of torch-cudagraph-debug, or ours where it is not installed or fails."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from aorta_collectors.tensors.graphs.cudagraph_debug import ProbeSlots, installed
from aorta_collectors.tensors.graphs.slots import MakeSlots, OwnSlots, Slots

#: Of one graph, which are there as long as it is.
MOST_BYTES = 1 << 30


class SlotMaker:
    """
    Args:
        warn: Told of a failure of the package, once.
        version: Of the package, None without it.
        probe: Makes its slots.
    """

    def __init__(
        self,
        warn: Callable[[str], None],
        version: str | None,
        probe: MakeSlots = lambda number: ProbeSlots(number, MOST_BYTES),
    ) -> None:
        self._warn = warn
        self._version = version
        self._probe = probe

    @classmethod
    def of_this_machine(cls, warn: Callable[[str], None]) -> SlotMaker:
        return cls(warn, installed())

    def make(self, number: int) -> Slots:
        own = OwnSlots(MOST_BYTES)
        if self._version is None:
            return own
        try:
            return _WithProbe(self._probe(number), own, self.failed)
        except Exception as error:
            self.failed(error)
            return own

    def failed(self, error: Exception) -> None:
        if self._version is not None:
            why = f"{type(error).__name__}: {error}"
            self._warn(f"torch-cudagraph-debug {self._version} is not used for CUDA graphs: {why}")
            self._version = None


class _WithProbe:
    """A probe's slots, and ours from where it fails on."""

    def __init__(self, probe: Slots, own: Slots, failed: Callable[[Exception], None]) -> None:
        self._probe: Slots | None = probe
        self._in_probe = 0
        self._works = True
        self._own = own
        self._failed = failed

    def put(self, tensor: Tensor) -> bool:
        if self._probe is not None and self._works:
            try:
                is_put = self._probe.put(tensor)
                self._in_probe += is_put
                return is_put
            except Exception as error:
                self._works = False
                self._failed(error)
        return self._own.put(tensor)

    def read(self) -> list[Tensor | None]:
        found: list[Tensor | None] = [None] * self._in_probe
        if self._probe is not None and self._in_probe:
            try:
                found = [*self._probe.read()]
            except Exception as error:
                self._failed(error)
        return [*found, *self._own.read()]

    def close(self) -> None:
        probe, self._probe = self._probe, None
        if probe is not None:
            try:
                probe.close()
            except Exception as error:
                self._failed(error)
        self._own.close()
