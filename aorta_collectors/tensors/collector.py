"""`Tensors`: the collector as the sweep knows it. Never imports torch by itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from aorta_collectors.api import Artifacts, Expected, Verification
from aorta_collectors.tensors.config import Config
from aorta_collectors.tensors.names import ARM_FUNCTION, PROCESS
from aorta_collectors.tensors.verify.metrics import summarize
from aorta_collectors.tensors.verify.verification import verify
from aorta_collectors.torch_collector.collector import TorchCollector

if TYPE_CHECKING:
    from aorta_collectors.observe.process.session import ProcessSession


class Tensors(TorchCollector):
    """Named tensors at named points of a run: digests and statistics, or all values, to compare runs by."""

    name = "tensors"
    output_subdir = "tensors"
    summaries = ("summary_rank*.json",)
    config = Config
    process = PROCESS
    arm_function = ARM_FUNCTION

    def make_session(
        self, config: Config, directory: Callable[[], Path], run_id: Callable[[], str | None]
    ) -> ProcessSession:
        from aorta_collectors.tensors.session import Session

        return Session(config, directory, run_id)

    def verify(self, artifacts: Artifacts, expected: Expected) -> Verification:
        return verify(artifacts, expected)

    def summarize(self, artifacts: Artifacts) -> Mapping[str, float | int | str]:
        return summarize(artifacts)
