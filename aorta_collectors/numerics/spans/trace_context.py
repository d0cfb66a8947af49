"""W3C Trace Context: which trace the spans of a process belong to, and how its children learn of it.

TRACEPARENT and TRACESTATE are the variables that https://www.w3.org/TR/trace-context-1/ names as headers, in the form
that OpenTelemetry gives environment variables. Without them the trace's id follows from the run's, so that all ranks of
a launch, which cannot ask one another, come to the same one.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field

PARENT_VARIABLE, STATE_VARIABLE = "TRACEPARENT", "TRACESTATE"
# A later version may have more fields behind these; ff is no version.
_PARENT = re.compile(r"(?!ff)(?P<version>[0-9a-f]{2})-(?P<trace>[0-9a-f]{32})-(?P<span>[0-9a-f]{16})-[0-9a-f]{2}(-.*)?")
_OURS = "aorta"
_MOST_MEMBERS = 32  # of a tracestate
_SPAN_IDS = 1 << 64


@dataclass(frozen=True)
class TraceContext:
    """Where the spans of a process stand in a trace.

    Attributes:
        trace_id: 32 hexadecimal digits.
        parent_id: The span of another process in which this one was started, 16 hexadecimal digits; None without one.
        lamport: The other process's logical clock then; 0 without one.
        state: What other tools have put into the trace's state.
    """

    trace_id: str
    parent_id: str | None = None
    lamport: int = 0
    state: tuple[str, ...] = ()
    _base: int = field(default_factory=lambda: int.from_bytes(os.urandom(8), "big"), compare=False)

    @classmethod
    def of(cls, environ: Mapping[str, str], run_id: str | None) -> TraceContext:
        """That of a process with these variables. A malformed TRACEPARENT counts for nothing, as the standard asks.

        Args:
            run_id: Of the sweep's trial, or of the standalone launch; None where there is neither.
        """
        found = _PARENT.fullmatch(environ.get(PARENT_VARIABLE, ""))
        if found is None or not (int(found["trace"], 16) and int(found["span"], 16)):
            return cls(_trace_id(run_id))
        if found["version"] == "00" and found[4]:
            return cls(_trace_id(run_id))
        members = [member.strip() for member in environ.get(STATE_VARIABLE, "").split(",") if member.strip()]
        ours = [member.partition("=")[2] for member in members if member.startswith(f"{_OURS}=")]
        clock = int(ours[0]) if ours and re.fullmatch(r"[0-9]{1,18}", ours[0]) else 0
        others = tuple(member for member in members if not member.startswith(f"{_OURS}="))
        return cls(found["trace"], found["span"], clock, others)

    def span_id(self, number: int) -> str:
        """16 hexadecimal digits for the span that this process numbers `number`; 0 is the process itself."""
        return f"{(self._base + number) % _SPAN_IDS or 1:016x}"

    def hand_down(self, environ: MutableMapping[str, str], lamport: int) -> dict[str, str | None]:
        """Let processes that are started with these variables know the trace; returns what stood there before.

        Args:
            lamport: This process's logical clock.
        """
        before = {name: environ.get(name) for name in (PARENT_VARIABLE, STATE_VARIABLE)}
        environ[PARENT_VARIABLE] = f"00-{self.trace_id}-{self.span_id(0)}-01"
        environ[STATE_VARIABLE] = ",".join((f"{_OURS}={lamport}", *self.state)[:_MOST_MEMBERS])
        return before

    def take_back(self, environ: MutableMapping[str, str], before: Mapping[str, str | None]) -> None:
        """Undo `hand_down`, unless somebody has put another trace there since."""
        if environ.get(PARENT_VARIABLE, "")[3:52] != f"{self.trace_id}-{self.span_id(0)}":
            return
        for name, value in before.items():
            if value is None:
                environ.pop(name, None)
            else:
                environ[name] = value


def _trace_id(run_id: str | None) -> str:
    if run_id is None:
        return os.urandom(16).hex()
    return hashlib.sha256(f"aorta-collectors {run_id}".encode()).hexdigest()[:32]
