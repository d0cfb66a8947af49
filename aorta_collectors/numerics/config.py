"""The configuration of one process, as a value: the options of a collect: block, from NUMERICS_* variables."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import ClassVar

from aorta_collectors.numerics.names import PREFIX
from aorta_collectors.numerics.options import without_effect
from aorta_collectors.torch_collector.configuration import Configuration

OPTIONS_SCHEMA = "numerics.options"


@dataclass(frozen=True)
class Config(Configuration):
    """What is in force; the fields are the options of schemas/numerics.options.json, which documents them."""

    options_schema: ClassVar[str] = OPTIONS_SCHEMA
    prefix: ClassVar[str] = PREFIX

    trace: str = "basic"
    steps: tuple[str, ...] = ()
    stats_every: int = 10
    on_bad: str = "record"
    profile: str = "off"
    otlp_endpoint: str = ""
    payload_max_bytes: int = 256 << 20
    escalate: str = "on"
    cv_threshold: float = 0.15
    efficiency_threshold: float = 0.25
    rate_limit: float = 100.0
    step_metrics: str = "on"
    interval: int = 100

    @property
    def traces(self) -> bool:
        """Whether spans are recorded."""
        return self.trace != "none"

    @property
    def reads_layers(self) -> bool:
        """Whether statistics of each layer are."""
        return self.trace in ("layer", "payload")

    @property
    def keeps_payload(self) -> bool:
        return self.trace == "payload"

    @property
    def profiles(self) -> bool:
        return self.profile != "off"

    @property
    def measures_steps(self) -> bool:
        return self.step_metrics == "on"

    @property
    def stops(self) -> bool:
        """Whether a bad value ends the run."""
        return self.on_bad == "stop" and self.reads_layers

    @property
    def escalates(self) -> bool:
        return self.escalate == "on" and self.profiles

    @property
    def asks_for_nothing(self) -> bool:
        """Whether there is nothing to observe: not a hook is set then."""
        return not (self.traces or self.profiles or self.measures_steps)

    def faults(self, given: Collection[str]) -> Iterator[tuple[str, str]]:
        yield from without_effect(self, given)
