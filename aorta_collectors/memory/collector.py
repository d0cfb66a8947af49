"""`Memory`: the collector as the sweep knows it. Never imports torch by itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aorta_collectors.api import Artifacts, Expected, Verification
from aorta_collectors.memory.config import Config
from aorta_collectors.memory.names import ARM_FUNCTION, PROCESS
from aorta_collectors.memory.verify.metrics import summarize
from aorta_collectors.memory.verify.verification import verify
from aorta_collectors.torch_collector.collector import TorchCollector

if TYPE_CHECKING:
    from aorta_collectors.observe.process.session import ProcessSession


class Memory(TorchCollector):
    """How much memory a process holds at the points of its model's steps, on host and devices, and who took it."""

    name = "memory"
    output_subdir = "memory"
    summaries = ("summary_rank*.json",)
    config = Config
    process = PROCESS
    arm_function = ARM_FUNCTION

    def make_session(
        self, config: Any, directory: Callable[[], Path], run_id: Callable[[], str | None]
    ) -> ProcessSession:
        from aorta_collectors.memory.session import Session

        return Session(config, directory, run_id)

    def verify(self, artifacts: Artifacts, expected: Expected) -> Verification:
        return verify(artifacts, expected)

    def summarize(self, artifacts: Artifacts) -> Mapping[str, float | int | str]:
        return summarize(artifacts)
