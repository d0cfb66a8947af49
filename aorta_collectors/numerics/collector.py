"""`Numerics`: the collector as the sweep knows it. Never imports torch by itself."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from aorta_collectors.api import (
    Artifacts,
    Capture,
    Collector,
    Expected,
    Launch,
    Options,
    Verification,
    WorkloadStopped,
)
from aorta_collectors.import_watch import ImportWatch
from aorta_collectors.numerics.config import OPTIONS_SCHEMA, Config
from aorta_collectors.numerics.names import ARM_FUNCTION, DIRECTORY_VARIABLE, PREFIX, RUN_ID_VARIABLE
from aorta_collectors.numerics.options import check_options
from aorta_collectors.numerics.verify.metrics import step_times_ms, summarize
from aorta_collectors.numerics.verify.verification import verify
from aorta_collectors.observe.process.ending import described
from aorta_collectors.options import decode
from aorta_collectors.schema_check import load_schema, validator


class Numerics(Collector):
    """Where time is spent, and whether each layer's statistics are sane: spans, step metrics, statistics, bricks."""

    name = "numerics"
    output_subdir = "numerics"
    summaries = ("summary_rank*.json",)
    schema = load_schema(OPTIONS_SCHEMA)

    def validate(self, raw: Mapping[str, str] | None) -> Options:
        options = self.recall(raw or {})
        check_options(options)
        return options

    def recall(self, raw: Mapping[str, str]) -> Options:
        return decode(raw, self.schema, validator(OPTIONS_SCHEMA))

    def plan(self, launch: Launch, options: Options, capture: Capture) -> Launch:
        env = {**_environment(options), DIRECTORY_VARIABLE: str(capture.artifacts), RUN_ID_VARIABLE: capture.run_id}
        # Last, since it passes all variables through launchers that would keep them back.
        return launch.with_env(env).armed_with(ARM_FUNCTION, capture.artifacts)

    @contextlib.contextmanager
    def armed(self, options: Options, capture: Callable[[], Capture]) -> Iterator[None]:
        config = Config.of(options.values)
        sessions: list[Any] = []

        def arm() -> None:
            try:
                # Imports torch, which the workload has just done itself.
                from aorta_collectors.numerics.session import Session

                session = Session(config, lambda: Path(capture().artifacts), lambda: capture().run_id)
                session.arm()
                sessions.append(session)
            except Exception as error:  # within the workload's own import of torch
                sys.stderr.write(f"aorta-collectors: could not arm numerics: {type(error).__name__}: {error}\n")

        watch = ImportWatch("torch", arm)
        watch.start()
        ended_by, failure = "exit", None
        try:
            yield
        except BaseException as error:
            ended_by, failure = described(error), error
            raise
        finally:
            watch.stop()
            for session in sessions:
                session.close(ended_by)
                # Also of a workload that has survived it.
                if session.stopped is not None:
                    raise WorkloadStopped(_told(session.stopped)) from failure

    def verify(self, artifacts: Artifacts, expected: Expected) -> Verification:
        return verify(artifacts, expected)

    def summarize(self, artifacts: Artifacts) -> Mapping[str, float | int | str]:
        return summarize(artifacts)

    def step_times_ms(self, artifacts: Artifacts) -> Sequence[float]:
        return step_times_ms(artifacts)


def _environment(options: Options) -> dict[str, str | None]:
    """All variables of options: those that are set, and every other one removed.

    The collect: block alone says what is captured, so that a variable left over in the operator's shell cannot.
    """
    return {
        PREFIX + name.upper(): options.raw.get(name) for name in Numerics.schema["properties"] if name != "on_missing"
    }


def _told(stopped: Mapping[str, Any]) -> str:
    return (
        f"numerics stopped the line in step {stopped['step']}: {stopped['kind']} in the {stopped['direction']} of "
        f"{stopped['layer']}"
    )
