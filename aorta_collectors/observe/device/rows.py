"""Reductions queued on devices, whose results reach the host a step later: what the observer sees of all this."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from aorta_collectors.observe.device.arena import Sending
from aorta_collectors.observe.device.captured import Capture
from aorta_collectors.observe.device.entries import Arrived, Entry, entry_of
from aorta_collectors.observe.device.launch import Kernels
from aorta_collectors.observe.device.reading import DeviceReader, Small
from aorta_collectors.observe.device.streams import CudaDevice, Device, apart
from aorta_collectors.observe.limits import Limits
from aorta_collectors.observe.reduce import Stats, read_rows, reduce_later


class UnwatchedCaptureError(RuntimeError):
    """A graph is being captured whose beginning was not seen: what its replays write could not be told apart."""


class DeviceRows:
    """Reductions queued on devices, as rows that reach the host a step later. Safe to use from several threads.

    On CUDA and ROCm one Triton kernel reads a tensor, or torch where there is no Triton or it fails. On a device of
    another kind torch reduces, and reading the rows waits.

    Args:
        log: Gets one line the first time that a dtype or a device is left to torch.
        device_of: Gives the streams and memory of a device, None for one without.
        kernels: Makes the kernels of one device; raises where there are none.
    """

    def __init__(
        self,
        log: Callable[[str], None] = lambda message: None,
        *,
        device_of: Callable[[torch.device], Device | None] = lambda device: accelerator(device),
        kernels: Callable[[], Kernels] = Kernels,
    ) -> None:
        self._log = log
        self._device_of = device_of
        self._make_kernels = kernels
        self._devices: dict[torch.device, DeviceReader | None] = {}
        self._lock = threading.RLock()
        self._entries: list[Entry] = []
        self._capture: Capture | None = None
        self._captures = 0

    @property
    def is_capturing(self) -> bool:
        """Whether a graph is being captured in this process: until it is done no device is asked for anything."""
        return self._capture is not None

    def queue(self, values: Tensor, limits: Limits, locate: bool, moments: bool = False) -> int:
        """Queue the reduction of `values` on the current stream of their device; never waits.

        Args:
            values: Strided, not empty, of a dtype that `reduce_later` takes.
            locate, moments: Whether places and sums are wanted too.

        Returns:
            The number of the row since the last seal, over all devices. While a graph is captured on that stream: since
            the beginning of the capture, and the row is the graph's.

        Raises:
            UnwatchedCaptureError: The capture was not announced (see graphs).
        """
        with self._lock, apart():
            on = self._on(values.device)
            if on is not None:
                with on.device.entered():
                    if on.device.is_capturing():
                        return self._captured(on, values, limits, locate, moments)
            return self._added([self._entry(on, values, limits, locate, moments)])[0]

    def queue_many(self, items: Sequence[tuple[Tensor, Limits]], locate: bool, moments: bool = False) -> list[int]:
        """The same for several tensors, small ones sharing launches. Returns the numbers in the order of the items."""
        with self._lock, apart():
            if self.is_capturing:
                return [self.queue(values, limits, locate, moments) for values, limits in items]
            entries: dict[int, Entry] = {}
            groups: dict[tuple[DeviceReader, tuple[int, ...]], list[tuple[int, Small]]] = {}
            for item, (values, limits) in enumerate(items):
                on = self._on(values.device)
                small = on.small(values, limits, locate, moments) if on is not None else None
                if on is None or small is None:
                    entries[item] = self._entry(on, values, limits, locate, moments)
                else:
                    groups.setdefault((on, small.plan.constants_of_table), []).append((item, small))
            for (on, _), group in groups.items():
                with on.device.entered():
                    rows = on.read_together([small for _, small in group]) if len(group) > 1 else None
                for place, (item, small) in enumerate(group):
                    values, limits = items[item]
                    if rows is None:
                        entries[item] = self._entry(on, values, limits, locate, moments)
                    else:
                        entries[item] = entry_of(rows[place], values, locate, moments, small.format)
            return self._added([entries[item] for item in range(len(items))])

    def seal(self) -> SealedRows | None:
        """End the step: its rows go to the host behind what has been queued, and numbers begin at 0 again.

        Returns:
            The rows of the step, None when nothing was queued. Those of graphs come with each replay instead.
        """
        with self._lock, apart():
            if not self._entries:
                return None
            entries, self._entries = self._entries, []
            sendings = []
            for on in self._devices.values():
                if on is not None:
                    with on.device.entered():
                        sending = on.arena.seal(now=not self.is_capturing)
                    if sending is not None:
                        sendings.append(sending)
            return SealedRows(self, entries, sendings)

    # -- graphs

    @property
    def next_capture(self) -> int:
        """The number that the next capture will have."""
        return self._captures + 1

    def begin_capture(self, device: torch.device) -> Capture | None:
        """A graph is about to be captured on `device`, where it is current. None for one without streams."""
        with self._lock, apart():
            on = self._on(device)
            if on is None:
                return None
            self._captures += 1
            self._capture = Capture(self._captures, on.device)
            return self._capture

    def end_capture(self) -> None:
        """The capture is over, or has failed."""
        self._capture = None

    def about_to_replay(self, capture: Capture) -> None:
        """Called before each replay, on its stream."""
        with self._lock, apart(), capture.device.entered():
            if not capture.device.is_capturing():
                capture.about_to_replay()

    def replayed(self, capture: Capture) -> SealedRows | None:
        """The rows as the replay leaves them that has just been queued on the current stream."""
        with self._lock, apart(), capture.device.entered():
            if not capture.entries or capture.device.is_capturing():
                return None
            return SealedRows(self, list(capture.entries), [capture.send()])

    def _added(self, entries: list[Entry]) -> list[int]:
        first = len(self._entries)
        self._entries += entries
        return list(range(first, first + len(entries)))

    def _entry(self, on: DeviceReader | None, values: Tensor, limits: Limits, locate: bool, moments: bool) -> Entry:
        if on is None:
            return entry_of(_reduced(values, limits, locate, moments), values, locate, moments, None)
        with on.device.entered():
            row = on.arena.take()[0]
            return on.read(row, values, limits, locate, moments, on.scratch, capturing=self.is_capturing)

    def _captured(self, on: DeviceReader, values: Tensor, limits: Limits, locate: bool, moments: bool) -> int:
        capture = self._capture
        if capture is None or capture.device is not on.device:
            raise UnwatchedCaptureError("a graph is captured of which nothing is known")
        entry = on.read(capture.take(), values, limits, locate, moments, capture.scratch, capturing=True)
        capture.entries.append(entry)
        return len(capture.entries) - 1

    def _on(self, device: torch.device) -> DeviceReader | None:
        if device not in self._devices:
            streams = self._device_of(device)
            reader = None if streams is None else DeviceReader(streams, self._kernels_of(device), self._log)
            self._devices[device] = reader
        return self._devices[device]

    def _kernels_of(self, device: torch.device) -> Kernels | None:
        try:
            kernels = self._make_kernels()
            if kernels.interpreted and device.type != "cpu":
                raise RuntimeError("TRITON_INTERPRET is set")
            return kernels
        except Exception as error:
            self._log(
                f"tensors on {device} are read with torch, Triton cannot be used: {type(error).__name__}: {error}"
            )
            return None


class SealedRows:
    """The rows of one step, or of one replay of a graph, on their way to the host."""

    def __init__(self, owner: DeviceRows, entries: list[Entry], sendings: list[Sending]) -> None:
        self._owner = owner
        self._entries = entries
        self._sendings = sendings
        self._stats: list[Stats] | None = None

    def is_ready(self) -> bool:
        """Whether `stats` would not wait. Asks the device, except while a graph is captured: then it says no."""
        if self._stats is not None:
            return True
        if self._owner.is_capturing:
            return False
        with apart():
            for sending in self._sendings:
                sending.send()
        return all(sending.is_ready() for sending in self._sendings)

    def stats(self) -> list[Stats]:
        """By number of the row. Waits for those that have not arrived; must not be called while a graph is captured."""
        if self._stats is None:
            with apart():
                self._stats = self._read()
            self._entries.clear()
            self._sendings.clear()
        return self._stats

    def _read(self) -> list[Stats]:
        arrived = Arrived({block: rows for sending in self._sendings for block, rows in sending.numbers().items()})
        loose = [(entry.numel, entry.row) for entry in self._entries if isinstance(entry.row, Tensor)]
        read = iter(read_rows(loose))
        return [next(read) if isinstance(entry.row, Tensor) else arrived.stats(entry) for entry in self._entries]


def _reduced(values: Tensor, limits: Limits, locate: bool, moments: bool) -> Tensor:
    if values.device.type == "mps":
        values = values.cpu()  # has no float64, which the rows are of
    return reduce_later(values, limits, locate, moments)


def accelerator(device: torch.device) -> Device | None:
    """What DeviceRows needs of a device of CUDA or ROCm; None for any other."""
    if device.type != "cuda":
        return None
    return CudaDevice(torch.cuda.current_device() if device.index is None else device.index)
