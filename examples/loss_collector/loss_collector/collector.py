"""`Losses`: the collector as a sweep knows it. This side runs in aorta's process, and never imports torch by itself."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from aorta_collectors.api import Artifacts, Capture, Collector, Expected, Launch, Options, Verdict, Verification


class Losses(Collector):
    """Writes down what backward() is called on, step by step."""

    name = output_subdir = "losses"
    schema = {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "EVERY": {
                "type": "integer",
                "minimum": 1,
                "default": 1,
                "description": "Read the loss in one step of N. On a GPU each reading waits for the device.",
            }
        },
    }

    def plan(self, launch: Launch, options: Options, capture: Capture) -> Launch:
        variables = {
            "LOSSES_DIR": str(capture.artifacts),
            "LOSSES_RUN_ID": capture.run_id,
            "LOSSES_EVERY": str(_every(options)),
        }
        return launch.with_env(variables).armed_with("loss_collector.recorder:arm", capture.artifacts)

    @contextlib.contextmanager
    def armed(self, options: Options, capture: Callable[[], Capture]) -> Iterator[None]:
        from loss_collector.recorder import Recorder

        recorder = Recorder(lambda: (capture().artifacts, capture().run_id), _every(options))
        recorder.start()
        try:
            yield
        finally:
            recorder.stop()

    def verify(self, artifacts: Artifacts, expected: Expected) -> Verification:
        processes = {name: list(_lines(artifacts, name)) for name in artifacts.sizes()}
        if not processes:
            return Verification(Verdict.MISSING, "no process called backward()")
        for name, lines in processes.items():
            if any(line["run_id"] not in expected.run_ids for line in lines):
                return Verification(Verdict.STALE, f"{name} belongs to another trial")
            if not lines or "ended_after" not in lines[-1]:
                return Verification(Verdict.INCOMPLETE, f"the process of {name} died; its losses end there")
        steps = max(lines[-1]["ended_after"] for lines in processes.values())
        return Verification(Verdict.CAPTURED, f"{len(processes)} process(es), {steps} step(s)")

    def summarize(self, artifacts: Artifacts) -> Mapping[str, float | int | str]:
        entries = [line for name in artifacts.sizes() for line in _lines(artifacts, name)]
        losses = [line["loss"] for line in entries if isinstance(line.get("loss"), float)]
        return {"losses_lowest": min(losses), "losses_last": losses[-1]} if losses else {}


def _every(options: Options) -> int:
    """As the recipe says: options hold no defaults."""
    return int(options.values.get("EVERY", 1))


def _lines(artifacts: Artifacts, name: str) -> Iterator[dict[str, Any]]:
    for line in artifacts.lines(name):
        yield json.loads(line)
