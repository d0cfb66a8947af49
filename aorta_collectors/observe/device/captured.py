"""Rows that belong to one CUDA graph: what its kernels write at every replay."""

from __future__ import annotations

from torch import Tensor

from aorta_collectors.observe.device.arena import WORDS, Block, Row, Sending
from aorta_collectors.observe.device.entries import Entry
from aorta_collectors.observe.device.scratch import Scratch
from aorta_collectors.observe.device.streams import Device, Mark

_ROWS = 1024  # 128 KiB


class Capture:
    """The rows of a graph. They live as long as this does, at the addresses that its kernels know.

    Make it before the capture begins: what is allocated while a graph is captured comes out of the graph's own memory,
    whose owner may not expect it. A graph with more rows, or with kernels on more than one stream, has no choice.

    Attributes:
        number: Of the capture, counted from 1.
        entries: Its rows in the order in which they were queued.
    """

    def __init__(self, number: int, device: Device) -> None:
        self.number = number
        self.device = device
        self.entries: list[Entry] = []
        self.scratch = Scratch(device)
        self._kept: list[Tensor] = [self.scratch.prepare()]
        self._blocks: list[Block] = []
        self._stream = device.stream()
        self._open = self._block(_ROWS)
        # Behind the last thing that touched the rows: their making, then the copies after each replay.
        self._touched: Mark = device.mark(self._stream)

    def take(self) -> Row:
        if not self._open.num_free:
            self._open = self._block(_ROWS)
        return self._open.take(1)[0]

    def about_to_replay(self) -> None:
        """Have the replay, on whatever stream it is, not overtake what still touches the rows."""
        stream = self.device.stream()
        if stream != self._stream:
            self._stream = stream
            self.device.follow(self._touched)
            for memory in self._kept:
                self.device.keep_for_stream(memory)

    def send(self) -> Sending:
        """Queue the copy of all rows right behind a replay."""
        blocks = [block for block in self._blocks if block.used]
        targets = {block: self.device.host_memory(block.used, WORDS) for block in blocks}
        copies = [(target, block.memory[: block.used]) for block, target in targets.items()]
        self._touched = self.device.send_here(copies)
        return Sending.sent(self.device, targets, self._touched)

    def _block(self, rows: int) -> Block:
        block = Block(self.device.memory(rows, WORDS), self._stream)
        self._blocks.append(block)
        self._kept.append(block.memory)
        return block
