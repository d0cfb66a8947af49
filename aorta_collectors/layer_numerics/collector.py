"""`LayerNumerics`: the collector as the sweep knows it. Never imports torch by itself."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aorta_collectors.api import (
    Artifacts,
    Capture,
    Collector,
    Expected,
    Launch,
    LaunchError,
    Options,
    OptionsError,
    Verification,
)
from aorta_collectors.layer_numerics.config import Config
from aorta_collectors.layer_numerics.flat import OPTIONS_SCHEMA
from aorta_collectors.layer_numerics.metrics import summarize
from aorta_collectors.layer_numerics.names import ARM_FUNCTION, CONFIG_FILE_VARIABLE, RUN_ID_VARIABLE
from aorta_collectors.layer_numerics.step_times import step_times_ms
from aorta_collectors.layer_numerics.support import check_flat, check_spec
from aorta_collectors.layer_numerics.verification import verify
from aorta_collectors.options import decode, parse_object
from aorta_collectors.schema_check import load_schema, validator
from aorta_collectors.torch_collector.in_process import armed_in_process

if TYPE_CHECKING:
    from aorta_collectors.observe.process.session import ProcessSession

_STOCK_MODULE = "aorta.instrumentation.layer_numerics"
_OURS = ("frontend", "on_missing")


class LayerNumerics(Collector):
    """NaN, Inf and huge counts and finite magnitudes per layer and step: traces a NaN to where it starts."""

    name = "layer_numerics"
    output_subdir = "layer_numerics"
    summaries = ("summary_rank*.json",)
    schema = load_schema(OPTIONS_SCHEMA)

    def validate(self, raw: Mapping[str, str] | None) -> Options:
        if "NANLOG_DIR" in (raw or {}):
            raise OptionsError("NANLOG_DIR", "the sweep sets it, one directory a trial; remove it")
        options = decode(raw, self.schema, validator(OPTIONS_SCHEMA))
        native = options.values.get("frontend", "native") == "native"
        check_flat(options, native=native)
        for variable, spec in _specs(options):
            try:
                check_spec(spec, native=native)
            except OptionsError as error:
                raise OptionsError(f"{variable}: {error.path}" if error.path else variable, error.message) from None
        return options

    def recall(self, raw: Mapping[str, str]) -> Options:
        return decode(raw, self.schema, validator(OPTIONS_SCHEMA))

    def check_in_process(self, options: Options) -> None:
        if options.values.get("frontend") == "aorta":
            raise OptionsError(
                "frontend",
                "the stock logger can only run a script, not a workload inside aorta's process; use frontend: native",
            )

    def plan(self, launch: Launch, options: Options, capture: Capture) -> Launch:
        env = _environment(options, str(capture.artifacts))
        if options.values.get("frontend") == "aorta":
            return _through_stock_logger(launch.with_env(env))
        spec_file = env["NANLOG_SPEC_FILE"]
        reads = [] if spec_file is None else [Path(spec_file)]
        # Last, since it passes all variables through launchers that would keep them back.
        return launch.with_env({**env, RUN_ID_VARIABLE: capture.run_id}).armed_with(
            ARM_FUNCTION, capture.artifacts, reads
        )

    def armed(self, options: Options, capture: Callable[[], Capture]) -> AbstractContextManager[None]:
        config = Config.from_environment(options.raw)

        def make(directory: Callable[[], Path], run_id: Callable[[], str | None]) -> ProcessSession:
            from aorta_collectors.layer_numerics.session import Session

            return Session(config, directory, run_id)

        return armed_in_process(self.name, make, capture)

    def verify(self, artifacts: Artifacts, expected: Expected) -> Verification:
        return verify(artifacts, expected)

    def summarize(self, artifacts: Artifacts) -> Mapping[str, float | int | str]:
        return summarize(artifacts)

    def step_times_ms(self, artifacts: Artifacts) -> Sequence[float]:
        return step_times_ms(artifacts)


def _environment(options: Options, directory: str) -> dict[str, str | None]:
    """All NANLOG_* variables: those of the options, and every other one removed.

    The collect: block alone says what is captured, so that a variable left over in the operator's shell cannot.
    """
    env: dict[str, str | None] = {
        name: options.raw.get(name) for name in LayerNumerics.schema["properties"] if name not in _OURS
    }
    env[CONFIG_FILE_VARIABLE] = None
    if env["NANLOG_SPEC_FILE"] is not None:
        env["NANLOG_SPEC_FILE"] = os.path.abspath(env["NANLOG_SPEC_FILE"])
    env["NANLOG_DIR"] = directory
    return env


def _specs(options: Options) -> Iterator[tuple[str, Any]]:
    if "NANLOG_SPEC" in options.values:
        yield "NANLOG_SPEC", options.values["NANLOG_SPEC"]
    path = options.values.get("NANLOG_SPEC_FILE")
    if path is not None:
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise OptionsError("NANLOG_SPEC_FILE", f"{path} cannot be read ({error})") from None
        yield "NANLOG_SPEC_FILE", parse_object("NANLOG_SPEC_FILE", text)


def _through_stock_logger(launch: Launch) -> Launch:
    target = launch.target()
    if target.kind != "script" or target.insert_at is None:
        raise LaunchError(
            f"frontend: aorta needs a command that ends in a python script ({target.description}); use frontend: native"
        )
    return launch.with_module(_STOCK_MODULE, target.insert_at, f"stock logger around {target.description}")
