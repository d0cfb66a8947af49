"""The configuration of one process, as a value: the options of a collect: block, from NUMERICS_* variables.

Alone, a malformed variable is reported and falls back to its default: a sidecar never takes a run down. In a sweep the
same text has been validated when the recipe was loaded, and verification compares what was in force
(`Config.describe`) with what was asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from aorta_collectors.errors import OptionsError
from aorta_collectors.numerics.names import PREFIX
from aorta_collectors.options import decode
from aorta_collectors.schema_check import load_schema, validator

OPTIONS_SCHEMA = "numerics.options"
TRACE_LEVELS = ("none", "basic", "layer", "payload")


@dataclass(frozen=True)
class Config:
    """What is in force; the fields are the options of schemas/numerics.options.json, which documents them.

    Attributes:
        warnings: What could not be taken as it was given.
    """

    trace: str = "basic"
    steps: tuple[str, ...] = ()
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
    warnings: tuple[str, ...] = field(default=(), compare=False)

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

    def describe(self) -> dict[str, Any]:
        """As the summary tells it, one entry an option."""
        told = {option.name: getattr(self, option.name) for option in fields(self) if option.name != "warnings"}
        return {**told, "steps": list(self.steps)}

    @classmethod
    def of(cls, values: Mapping[str, Any], warnings: tuple[str, ...] = ()) -> Config:
        """From decoded options, without those that are no field, such as on_missing."""
        known = {option.name for option in fields(cls)} - {"warnings"}
        given: dict[str, Any] = {name: value for name, value in values.items() if name in known}
        if "steps" in given:
            given["steps"] = tuple(given["steps"])
        return cls(**given, warnings=warnings)

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Config:
        """From variables; each that is malformed is left out, and a warning says so."""
        schema = load_schema(OPTIONS_SCHEMA)
        checker = validator(OPTIONS_SCHEMA)
        values: dict[str, Any] = {}
        warnings: list[str] = []
        for name in schema["properties"]:
            text = environ.get(PREFIX + name.upper())
            if text is None or name == "on_missing":
                continue
            try:
                values.update(decode({name: text}, schema, checker).values)
            except OptionsError as error:
                warnings.append(f"{PREFIX}{name.upper()}: {error.message}; the default is used")
        return cls.of(values, tuple(warnings))
