"""A process's file of lines, read once from its first to its last, each line to the schema and of that process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from aorta_collectors import strict_json
from aorta_collectors.analysis.captures import Process
from aorta_collectors.artifacts.lines import batches
from aorta_collectors.errors import ArtifactError
from aorta_collectors.evidence.directory import Anchor
from aorta_collectors.schema_check import fault_text, first_fault, validator

Line = dict[str, Any]


class LinesOf:
    """The lines of one kind that one process left. Iterating reads them anew.

    Args:
        directory: In which they lie.
        kind: Such as tensors, of tensors_rank0.jsonl.
        schema: Of a line, such as tensors.observation.

    Attributes:
        notes: Once they are read: what is not as it should be, a sentence each.
    """

    def __init__(self, directory: Path, process: Process, kind: str, schema: str) -> None:
        self._directory, self._process, self._kind, self._schema = directory, process, kind, schema
        self.name = f"{kind}_{process.stem}.jsonl"
        self.notes: list[str] = []

    def __iter__(self) -> Iterator[Line]:
        """Raises ArtifactError for a line that is none of this process's, with its number and what is wrong."""
        self.notes.clear()
        if self._kind not in self._process.files:
            self.notes.append(f"there is no {self.name} in {self._directory}")
            return
        count = 0
        with Anchor(self._directory).open(self._directory) as directory:
            for texts in batches(directory.lines(self.name)):
                if not texts[-1].endswith(b"\n"):
                    texts.pop()
                    self.notes.append(f"{self.name} ends in line {count + len(texts) + 1}, which is torn off")
                yield from self._lines(count, texts)
                count += len(texts)
        self._compare_counts(count)

    def _compare_counts(self, count: int) -> None:
        """Note where the summary knows of more lines than there are, or of some that were never written."""
        summary = self._process.summary
        told = summary.get("files", {}).get(self._kind, {})
        written = told.get("written", summary.get("lines_written", 0))
        dropped = told.get("dropped", summary.get("lines_dropped", 0))
        if count < written:
            self.notes.append(f"{self.name} has {count} line(s), and its summary says {written}")
        if dropped:
            self.notes.append(f"there was no room for {dropped} line(s) in {self.name}")

    def _lines(self, before: int, texts: Sequence[bytes]) -> list[Line]:
        """Some lines, of which `before` others stand in front."""
        summary = self._process.summary
        try:
            lines: list[Line] = strict_json.loads_lines(texts)
            if validator(self._schema).fits(lines) and {(line["rank"], line["pid"]) for line in lines} <= {
                (summary["rank"], summary["pid"])
            }:
                return lines
        except ValueError:
            pass
        return [self._line(number, text) for number, text in enumerate(texts, before + 1)]

    def _line(self, number: int, text: bytes) -> Line:
        place = f"{self._directory / self.name}: line {number}"
        try:
            line: Line = strict_json.loads(text)
        except ValueError as error:
            raise ArtifactError(f"{place}: {error}") from None
        fault = first_fault(validator(self._schema), line)
        if fault is not None:
            raise ArtifactError(f"{place}: {fault_text(fault)}")
        if (line["rank"], line["pid"]) != (self._process.summary["rank"], self._process.summary["pid"]):
            raise ArtifactError(f"{place} is of rank {line['rank']}, process {line['pid']}, and the summary is not")
        return line
