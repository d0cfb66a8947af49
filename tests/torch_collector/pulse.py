"""A collector as an author elsewhere would write it: how many points of a model's life each step has."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from aorta_collectors.api import Artifacts, Expected, Verdict, Verification
from aorta_collectors.observe.process.names import ProcessNames
from aorta_collectors.observe.process.session import ProcessSession
from aorta_collectors.torch_collector.arming import arm_configured
from aorta_collectors.torch_collector.collector import TorchCollector
from aorta_collectors.torch_collector.configuration import Configuration
from aorta_collectors.torch_collector.standalone import CommandLine, OwnOption

PROCESS = ProcessNames("pulse", "PULSE_RUN_ID", "PULSE_DIR", "pulse_out")
ARM_FUNCTION = "tests.torch_collector.pulse:arm"
SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "points": {
            "description": "Which points count.",
            "type": "array",
            "items": {"enum": ["before_forward", "after_forward", "after_step"]},
            "minItems": 1,
        },
        "most": {"description": "Steps that are counted.", "type": "integer", "minimum": 0},
        "ends": {"description": "Whether the workload ends by it.", "type": "boolean"},
        "on_missing": {"description": "As ever.", "enum": ["error", "warn"]},
    },
}


@dataclass(frozen=True)
class Config(Configuration):
    options_schema: ClassVar[Mapping[str, Any]] = SCHEMA
    prefix: ClassVar[str] = "PULSE_"

    points: tuple[str, ...] = ("after_forward",)
    most: int = 100
    ends: bool = False

    @property
    def asks_for_nothing(self) -> bool:
        return self.most == 0

    def faults(self, given: Collection[str]) -> Iterator[tuple[str, str]]:
        if "points" in given and self.asks_for_nothing:
            yield "points", "has no effect with most: 0"


class Pulse(TorchCollector):
    """The points of each step."""

    name = "pulse"
    output_subdir = "pulse"
    config = Config
    process = PROCESS
    arm_function = ARM_FUNCTION

    def make_session(
        self, config: Config, directory: Callable[[], Path], run_id: Callable[[], str | None]
    ) -> ProcessSession:
        from tests.torch_collector.pulse_session import Session

        return Session(config, directory, run_id)

    def stopped(self, session: Any) -> str | None:
        return "the pulse has ended it" if session.config.ends else None

    def verify(self, artifacts: Artifacts, expected: Expected) -> Verification:
        found = json.loads(artifacts.read("summary_rank0.json"))
        return Verification(Verdict.CAPTURED, f"{found['steps_seen']} step(s)", found["pulse"])


def arm(started_in: str) -> None:
    arm_configured("pulse", PROCESS, Config, started_in, _session)


def _session(config: Config, directory: Callable[[], Path], run_id: Callable[[], str | None]) -> ProcessSession:
    from tests.torch_collector.pulse_session import Session

    return Session(config, directory, run_id, to_the_end=True)


def command_line(own: dict[str, OwnOption] | None = None, **options: Any) -> CommandLine[Config]:
    return CommandLine(
        Config, PROCESS, ARM_FUNCTION, about="Counts points.", example="--most 3 train.py", own=own, **options
    )
