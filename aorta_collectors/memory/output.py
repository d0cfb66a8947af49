"""What one process writes beside its summary: a line for each point, and lines of what grew between them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from aorta_collectors.observe.files import RecordFile
from aorta_collectors.observe.process.place import Place
from aorta_collectors.torch_collector.told import replaced


class Output:
    """The files of one process, in its place. Those of an earlier launch are replaced.

    Args:
        warn: Told that files are replaced.
        grows: Whether there is a file of growth.
    """

    def __init__(self, place: Place, warn: Callable[[str], None], *, grows: bool) -> None:
        for told in replaced(place.records):
            warn(told)
        self.points = RecordFile(place.records)
        self.growth: RecordFile | None = None
        if grows:
            self.growth = RecordFile(place.records.with_name(f"growth_{place.stem}.jsonl"))
        self._identity = {"rank": place.rank, "pid": os.getpid()}

    @property
    def files(self) -> list[RecordFile]:
        return [self.points, *([self.growth] if self.growth is not None else [])]

    def write_points(self, lines: Sequence[Mapping[str, Any]]) -> None:
        self.points.append([self._encoded(line) for line in lines])

    def write_growth(self, lines: Sequence[Mapping[str, Any]]) -> None:
        assert self.growth is not None
        self.growth.append([self._encoded(line) for line in lines])

    def _encoded(self, line: Mapping[str, Any]) -> str:
        return json.dumps({**self._identity, **line}, separators=(",", ":"))

    def fields(self, dropped: int) -> dict[str, Any]:
        """For the summary.

        Args:
            dropped: Points that there was no room for.
        """
        files = {"memory": {"written": self.points.written, "dropped": dropped}}
        if self.growth is not None:
            files["growth"] = {"written": self.growth.written, "dropped": 0}
        return {"files": files}
