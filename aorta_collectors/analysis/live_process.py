"""One process that runs: its summary, as it is brought up to date, and its signs of life.

A process writes its step count into its summary in each step, and so changes the file as long as it goes on.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

from aorta_collectors.analysis.captures import LAYER_NUMERICS, Source
from aorta_collectors.analysis.snapshot import Rank
from aorta_collectors.analysis.summaries import read_summary
from aorta_collectors.analysis.tailing import Tail
from aorta_collectors.errors import ArtifactError
from aorta_collectors.evidence.directory import ArtifactDirectory
from aorta_collectors.observe.process.signals import NOTED, note_name, told

# The rate is that of the last so many seconds, or longer where steps take longer.
_RATE_S = 20.0
_MOST_BEATS = 200
# A process that cannot be found is taken for gone after so long, and a rank for silent at the earliest.
_GRACE_S = 5.0
_STEPS_OF_SILENCE = 10
# Ranks read at the same moment may be some milliseconds apart.
_AT_ONCE_S = 0.5


class LiveProcess:
    """What one process left so far.

    Args:
        stem: Of its files' names, such as rank0.
        source: The collector that it is a process of.

    Attributes:
        summary: As it is now; empty before it could be read.
        tails: Of its files of lines, by kind.
        changed_at: When the summary was, in seconds since the epoch, by the clock of its file system; 0 before.
        silent_s: Seconds since it was last heard of.
    """

    def __init__(self, stem: str, source: Source = LAYER_NUMERICS) -> None:
        self.stem = stem
        self._schema = source.schema
        self.summary: Mapping[str, Any] = {}
        self.tails = {kind: Tail(f"{kind}_{stem}.jsonl") for kind in source.lines}
        self.silent_s = 0.0
        self._killed_by: str | None = None
        self.changed_at = 0.0
        self._heard_at = 0.0
        self._beats: deque[tuple[float, int]] = deque(maxlen=_MOST_BEATS)

    @property
    def identity(self) -> tuple[Any, ...]:
        """The same as long as it is the same process of the same launch."""
        return tuple(self.summary.get(key) for key in ("run_id", "host", "pid", "started_at"))

    @property
    def rank(self) -> int:
        return int(self.summary["rank"])

    @property
    def steps(self) -> int:
        return int(self.summary["steps_seen"])

    @property
    def restart(self) -> int:
        return int(self.summary.get("restart", 0))

    def look(self, directory: ArtifactDirectory) -> None:
        """Read what is new. Raises ArtifactError; what was known before stays."""
        name, now = f"summary_{self.stem}.json", time.monotonic()
        with directory.opened(name) as fd:
            changed_at = os.fstat(fd).st_mtime
        if changed_at != self.changed_at:
            self.summary = read_summary(directory, name, self._schema)
            # Another machine may have set the time of the file, by a clock of its own.
            self._heard_at = now if self.changed_at else now - max(0.0, time.time() - changed_at)
            self.changed_at = changed_at
            if not self._beats or self._beats[-1][1] != self.steps:
                self._beats.append((changed_at, self.steps))
        self.silent_s = max(0.0, now - self._heard_at)
        self._killed_by = None
        if self.summary.get("status", "running") == "running":
            for signal in NOTED:
                with contextlib.suppress(ArtifactError):
                    if note := directory.read(note_name(signal, self.stem)).decode(errors="replace"):
                        self._killed_by = told(signal, note)

    @property
    def state(self) -> str:
        """running, ended, killed or gone."""
        if self.summary.get("status", "running") != "running":
            return "ended"
        if self._killed_by is not None:
            return "killed"
        if self.silent_s > _GRACE_S and self.summary["host"] == socket.gethostname():
            try:
                os.kill(self.summary["pid"], 0)
            except (ProcessLookupError, OverflowError):
                return "gone"
            except OSError:
                pass  # somebody else's
        return "running"

    @property
    def steps_per_s(self) -> float | None:
        """Lately; at the first look as the summary has it."""
        if len(self._beats) > 1:
            last_at, last = self._beats[-1]
            first_at, first = next((beat for beat in self._beats if last_at - beat[0] <= _RATE_S), self._beats[-2])
            if first == last:
                first_at, first = self._beats[-2]
            return (last - first) / (last_at - first_at) if last_at > first_at and last > first else None
        step_ms = self.summary.get("overhead", {}).get("step_ms_p50")
        return 1000 / step_ms if step_ms else None

    def as_rank(self, foremost: LiveProcess) -> Rank:
        """As it is shown, beside the one that has come farthest."""
        state, rate, behind = self.state, self.steps_per_s, foremost.steps - self.steps
        first_bad = self.summary.get("first_bad")
        return Rank(
            rank=self.rank,
            files=self.stem,
            host=self.summary["host"],
            pid=self.summary["pid"],
            state=state,
            ended_by=self._killed_by or self.summary.get("ended_by"),
            steps=self.steps,
            behind=behind if behind > max(1.0, (foremost.steps_per_s or 0.0) * _AT_ONCE_S) else 0,
            silent_s=self.silent_s,
            is_slow=state == "running" and self.silent_s > max(_GRACE_S, _STEPS_OF_SILENCE / rate if rate else _RATE_S),
            first_bad_step=first_bad["step"] if first_bad is not None else None,
            write_error=self.summary.get("write_error"),
        )
