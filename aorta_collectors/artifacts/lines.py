"""A file of lines, read to the last one: whole, to its schema, of its process, and as many as the summary counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from aorta_collectors import strict_json
from aorta_collectors.api import Artifacts, Verdict
from aorta_collectors.artifacts.process import Fault, Process
from aorta_collectors.errors import ArtifactError
from aorta_collectors.schema_check import fault_text, first_fault, validator

# Lines are checked together as far as all is well with them; the text of a batch, in bytes.
_BATCH_BYTES = 1 << 20

Line = dict[str, Any]


@dataclass(frozen=True)
class LinesFile:
    """What is to hold of one process's file.

    Attributes:
        name: Such as layers_rank0.jsonl.
        schema: Of a line, such as "layer_numerics.record".
        written: Lines, as the summary has it.
        identity: Fields that each line has in common with the summary.
    """

    name: str
    schema: str
    written: int
    identity: tuple[str, ...]

    def check(self, artifacts: Artifacts, process: Process, look: Callable[[Sequence[Line]], None]) -> int:
        """Read the file to its last line. Returns how many there are.

        Args:
            look: Given the lines, some at a time, once all is well with them.

        Raises:
            Fault: invalid, stale; incomplete where the process died in the middle of a line.
        """
        if self.name not in artifacts.sizes():
            raise Fault(
                Verdict.INVALID, f"{self.name} is missing beside its summary: the program, or what it ran, removed it"
            )
        count = 0
        try:
            for texts in batches(artifacts.lines(self.name)):
                torn = not texts[-1].endswith(b"\n")
                if torn:
                    texts.pop()
                look(self._lines(count, texts, process))
                count += len(texts)
                if torn and not process.is_behind:
                    raise Fault(Verdict.INVALID, f"{self.name}: line {count + 1} is torn off")
                if torn and process.running:
                    raise Fault(
                        Verdict.INCOMPLETE,
                        f"{self.name}: line {count + 1} is torn off: rank {process.rank} died while it wrote, in step "
                        f"{process.steps}; evidence ends there",
                    )
        except ArtifactError as error:
            raise Fault(Verdict.INVALID, str(error)) from None
        if count < self.written or (count > self.written and not process.is_behind):
            raise Fault(Verdict.INVALID, f"{self.name}: {count} line(s), but the summary says {self.written}")
        return count

    def _lines(self, before: int, texts: Sequence[bytes], process: Process) -> list[Line]:
        """Some lines, of which `before` others stand in front. Raises Fault for the first bad one."""
        summary = process.summary
        try:
            lines: list[Line] = strict_json.loads_lines(texts)
            if (
                validator(self.schema).fits(lines)
                and all({line[key] for line in lines} == {summary[key]} for key in self.identity)
                and max(line["step"] for line in lines) <= process.steps
            ):
                return lines
        except ValueError:
            pass
        # Something may be wrong with one of them, and the person who reads of it wants to know with which.
        return [
            self._line(f"{self.name}: line {number}", text, process) for number, text in enumerate(texts, before + 1)
        ]

    def _line(self, place: str, text: bytes, process: Process) -> Line:
        try:
            line: Line = strict_json.loads(text)
        except ValueError as error:
            raise Fault(Verdict.INVALID, f"{place}: {error}") from None
        fault = first_fault(validator(self.schema), line)
        if fault is not None:
            raise Fault(Verdict.INVALID, f"{place}: {fault_text(fault)}")
        if any(line[key] != process.summary[key] for key in self.identity):
            raise Fault(Verdict.STALE, f"{place} is from process {line['pid']}, not from this trial")
        if line["step"] > process.steps:
            raise Fault(Verdict.INVALID, f"{place}: step {line['step']} of {process.steps}")
        return line


def batches(lines: Iterator[bytes]) -> Iterator[list[bytes]]:
    """Lines by the some, as many as are checked at once."""
    batch: list[bytes] = []
    size = 0
    for line in lines:
        batch.append(line)
        size += len(line)
        if size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
