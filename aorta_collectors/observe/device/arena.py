"""Rows of results on one device, in buffers that take turns: one is written to while the others are on their way.

A row is WORDS int64 numbers. What the kernel writes into it, by index:

    LOW, HIGH              keys (see formats) of the smallest and the largest finite element
    BAD                    elements that are not finite, huge or out of range; where it is 0 nothing below is valid
    NAN, INF, POSINF       elements
    HUGE, OUT_OF_RANGE     elements; one may be both
    FIRST, FIRST_KEY       flat index of the first bad element, and its key
    BAD_ROWS               rows along dim 0 with a bad element, for tensors of two or more dimensions
    TOTAL, SQUARES         sum and sum of squares of the finite elements, the bits of float64; valid where asked for

What torch reduced lies in a row as the float64 numbers of `reduce_later`.
"""

from __future__ import annotations

from torch import Tensor

from aorta_collectors.observe.device.streams import Device, Mark

WORDS = 16
LOW, HIGH, BAD, NAN, INF, POSINF, HUGE, OUT_OF_RANGE, FIRST, FIRST_KEY, BAD_ROWS, TOTAL, SQUARES = range(13)

# Buffers of a device. With two, reading one step late never waits; a caller that reads later gets as many as this.
_MOST_BUFFERS = 4


class Block:
    """Rows that lie one after the other in memory. They are never moved: kernels know their addresses.

    Attributes:
        stream: The stream that writes to them; of a block that belongs to a graph, the one that it was made on.
        used: Rows given out.
    """

    def __init__(self, memory: Tensor, stream: int) -> None:
        self.memory = memory
        self.stream = stream
        self.used = 0
        self._address = memory.data_ptr()

    @property
    def num_free(self) -> int:
        return len(self.memory) - self.used

    def take(self, count: int) -> list[Row]:
        rows = [Row(self, index) for index in range(self.used, self.used + count)]
        self.used += count
        return rows

    def address(self, index: int) -> int:
        return self._address + index * WORDS * 8


class Row:
    """A place for one result."""

    __slots__ = ("block", "index")

    def __init__(self, block: Block, index: int) -> None:
        self.block = block
        self.index = index

    @property
    def address(self) -> int:
        return self.block.address(self.index)

    def write(self, numbers: Tensor) -> None:
        """Queue that float64 `numbers` are put here, as they are."""
        self.block.memory[self.index, : len(numbers)].view(numbers.dtype).copy_(numbers)


class Sending:
    """Rows of one device on their way to the host."""

    def __init__(self, device: Device, blocks: list[Block]) -> None:
        self._device = device
        self._blocks = blocks
        self._targets: dict[Block, Tensor] = {}
        self._mark: Mark | None = None

    @classmethod
    def sent(cls, device: Device, targets: dict[Block, Tensor], mark: Mark) -> Sending:
        """Of copies that have been queued already: `mark` is behind them."""
        sending = cls(device, list(targets))
        sending._targets, sending._mark = targets, mark
        return sending

    def send(self) -> None:
        """Queue the copies, behind all that has been queued on the streams of the blocks; once."""
        if self._mark is None:
            self._targets = {block: self._device.host_memory(block.used, WORDS) for block in self._blocks}
            copies = [(target, block.memory[: block.used]) for block, target in self._targets.items()]
            marks = [self._device.mark(stream) for stream in {block.stream: None for block in self._blocks}]
            self._mark = self._device.send(copies, marks)

    def is_ready(self) -> bool:
        return self._mark is not None and self._mark.query()

    def numbers(self) -> dict[Block, Tensor]:
        """The rows, (rows, WORDS) per block. Waits for them."""
        self.send()
        if not self.is_ready():
            assert self._mark is not None
            self._mark.synchronize()
        return self._targets


class _Buffer:
    """Blocks that are filled and sent together; the last one of a stream is the one being filled."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self.open: dict[int, Block] = {}
        self.sending: Sending | None = None


class Arena:
    """The buffers of one device. A block serves one stream, so that no stream ever waits for another one.

    Args:
        rows: In the first block of a stream; each further one of a buffer is as large as all before it.
    """

    def __init__(self, device: Device, rows: int = 256) -> None:
        self._device = device
        self._rows = rows
        self._current = _Buffer()
        self._buffers = [self._current]

    def take(self, count: int = 1) -> list[Row]:
        """Rows that lie one after the other, to be written to on the current stream."""
        stream = self._device.stream()
        buffer = self._current
        block = buffer.open.get(stream)
        if block is None or block.num_free < count:
            size = sum(len(each.memory) for each in buffer.blocks if each.stream == stream) or self._rows
            block = Block(self._device.memory(max(size, count), WORDS), stream)
            self._device.keep_for_copies(block.memory)
            buffer.blocks.append(block)
            buffer.open[stream] = block
        return block.take(count)

    def seal(self, *, now: bool = True) -> Sending | None:
        """All rows taken since the last time, None if there are none; what follows goes into another buffer.

        Args:
            now: Queue the copy at once, and take the other buffer from those that have arrived; waits only where none
                has and there are many. Otherwise, while a graph is captured, nothing is asked of the device.
        """
        full = [block for block in self._current.blocks if block.used]
        if not full:
            return None
        sending = self._current.sending = Sending(self._device, full)
        if now:
            sending.send()
            self._current = self._emptied_buffer()
        else:
            self._current = _Buffer()
            self._buffers.append(self._current)
        return sending

    def _emptied_buffer(self) -> _Buffer:
        for buffer in self._buffers:
            if buffer.sending is not None and buffer.sending.is_ready():
                return self._emptied(buffer)
        if len(self._buffers) < _MOST_BUFFERS:
            self._buffers.append(_Buffer())
            return self._buffers[-1]
        oldest = self._buffers.pop(0)
        self._buffers.append(oldest)
        assert oldest.sending is not None
        oldest.sending.numbers()
        return self._emptied(oldest)

    def _emptied(self, buffer: _Buffer) -> _Buffer:
        """Keeps the block of each stream that was used; where a stream took several, its next one will be large."""
        kept = []
        for stream, block in buffer.open.items():
            sizes = [len(each.memory) for each in buffer.blocks if each.stream == stream]
            if len(sizes) > 1:
                self._rows = max(self._rows, sum(sizes))
            elif block.used:
                block.used = 0
                kept.append(block)
        buffer.blocks = kept
        buffer.open = {block.stream: block for block in kept}
        buffer.sending = None
        return buffer
