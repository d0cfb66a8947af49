"""What one process writes beside its summary: lines of spans, statistics, steps and closer looks, and spans sent on."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from aorta_collectors.numerics.config import Config
from aorta_collectors.numerics.lines import Lines
from aorta_collectors.numerics.part import StepTrace
from aorta_collectors.numerics.spans.encoding import encoded
from aorta_collectors.numerics.spans.otlp import OtlpSender
from aorta_collectors.numerics.spans.span import Span
from aorta_collectors.numerics.spans.span_lines import SpanLines
from aorta_collectors.numerics.spans.trace_context import TraceContext
from aorta_collectors.observe.files import RecordFile
from aorta_collectors.observe.process.place import Place


class Output:
    """The files that a configuration asks for, in one process's place. Those of an earlier launch are replaced.

    Args:
        context: Where the process stands in the trace.
        warn: Told what is not written.
    """

    def __init__(self, config: Config, place: Place, context: TraceContext, warn: Callable[[str], None]) -> None:
        kinds = {"stats": config.reads_layers, "steps": config.measures_steps, "escalations": config.escalates}
        # This one has been claimed by its name.
        self._lines = {"spans": Lines("spans", RecordFile(place.records), warn)}
        for kind in (kind for kind, is_asked in kinds.items() if is_asked):
            file = RecordFile(place.records.with_name(f"{kind}_{place.stem}.jsonl"))
            apart = config.stats_every if kind == "stats" else 1
            self._lines[kind] = Lines(kind, file, warn, thins=kind != "escalations", apart=apart)
        for left_over in place.records.parent.glob(f"payload_{place.stem}_step*.safetensors"):
            with contextlib.suppress(OSError):
                left_over.unlink()
        self._context = context
        self._identity = {"rank": place.rank, "pid": os.getpid()}
        self._spans = SpanLines(context, place.rank, os.getpid())
        self._sender: OtlpSender | None = None
        if config.otlp_endpoint:
            self._sender = OtlpSender(config.otlp_endpoint, self._spans, _resource(place))

    @property
    def files(self) -> list[RecordFile]:
        return [lines.file for lines in self._lines.values()]

    def step(self, trace: StepTrace) -> None:
        """Write what is known of a step."""
        special = {trace.step, *trace.bad_steps} if trace.bad_steps or trace.escalations else set()
        is_special = special.__contains__
        self._write(trace.spans, is_special)
        ids = self._context.span_id
        looks = [
            {**line, "span_id": None if line["span_id"] is None else ids(line["span_id"])} for line in trace.escalations
        ]
        metrics = [*trace.past_metrics, *([trace.metrics] if trace.metrics is not None else [])]
        for kind, found in (("stats", trace.stats), ("steps", metrics), ("escalations", looks)):
            if kind in self._lines:
                lines = ((line["step"], {**self._identity, **line}) for line in found)
                self._lines[kind].append(lines, encoded, is_special)
        self._send(trace.spans)

    def finish(self, spans: Sequence[Span], process: Span | None) -> None:
        """Write the last spans, and that of the process, and let the receiver have what waits for it."""
        self._write(spans, lambda step: True)
        if process is not None:
            self._lines["spans"].add_last(self._line(process))
            self._send([*spans, process])
        if self._sender is not None:
            self._sender.close()

    def _write(self, spans: Sequence[Span], is_special: Callable[[int], bool]) -> None:
        self._lines["spans"].append(((span.step, span) for span in spans), self._line, is_special)

    def _line(self, span: Span) -> str:
        return self._spans.lines([span])[0]

    def _send(self, spans: Sequence[Span]) -> None:
        if self._sender is not None:
            self._sender.send(spans)

    def fields(self, lost: int = 0) -> dict[str, Any]:
        """For the summary.

        Args:
            lost: Spans that have not come this far.
        """
        files = {kind: {"written": lines.file.written, "dropped": lines.dropped} for kind, lines in self._lines.items()}
        files["spans"]["dropped"] += lost
        return {
            "files": files,
            "otlp": self._sender.fields() if self._sender is not None else None,
        }


def _resource(place: Place) -> Mapping[str, str | int]:
    """In the words of OpenTelemetry's semantic conventions, where they have one."""
    told: dict[str, str | int] = {
        "host.name": socket.gethostname(),
        "process.pid": os.getpid(),
        "aorta.rank": place.rank,
    }
    return told if place.run_id is None else {**told, "aorta.run_id": place.run_id}
