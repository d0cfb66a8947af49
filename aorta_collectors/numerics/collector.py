"""`Numerics`: the collector as the sweep knows it. Never imports torch by itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aorta_collectors.api import Artifacts, Expected, Options, OptionsError, Verification
from aorta_collectors.numerics.config import Config
from aorta_collectors.numerics.names import ARM_FUNCTION, PROCESS
from aorta_collectors.numerics.verify.metrics import step_times_ms, summarize
from aorta_collectors.numerics.verify.verification import verify
from aorta_collectors.torch_collector.collector import TorchCollector

if TYPE_CHECKING:
    from aorta_collectors.observe.process.session import ProcessSession


class Numerics(TorchCollector):
    """Where time is spent, and whether each layer's statistics are sane: spans, step metrics, statistics, bricks."""

    name = "numerics"
    output_subdir = "numerics"
    summaries = ("summary_rank*.json",)
    config = Config
    process = PROCESS
    arm_function = ARM_FUNCTION

    def validate(self, raw: Mapping[str, str] | None) -> Options:
        if Config.of(Config.decoded(raw).values).asks_for_nothing:
            fault = "trace: none, profile: off and step_metrics: off ask for nothing; leave one of them out"
            raise OptionsError("trace", fault)
        return super().validate(raw)

    def make_session(
        self, config: Config, directory: Callable[[], Path], run_id: Callable[[], str | None]
    ) -> ProcessSession:
        from aorta_collectors.numerics.session import Session

        return Session(config, directory, run_id)

    def stopped(self, session: Any) -> str | None:
        found = session.stopped
        if found is None:
            return None
        where = f"{found['kind']} in the {found['direction']} of {found['layer']}"
        return f"numerics stopped the line in step {found['step']}: {where}"

    def verify(self, artifacts: Artifacts, expected: Expected) -> Verification:
        return verify(artifacts, expected)

    def summarize(self, artifacts: Artifacts) -> Mapping[str, float | int | str]:
        return summarize(artifacts)

    def step_times_ms(self, artifacts: Artifacts) -> Sequence[float]:
        return step_times_ms(artifacts)
