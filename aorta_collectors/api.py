"""The plugin contract: all that an author of a collector needs to read.

A collector gathers evidence in the trials of a sweep. It is a class, registered under the name that recipes use:

    [project.entry-points."aorta.collectors"]
    heartbeat = "my_package:Heartbeat"

and it is asked, in this order:

1. `validate`: when a recipe is loaded, in a dry run too. Turns the collect: block into `Options`.
2. `plan` for a trial that runs a command, or `armed` for a workload inside the host's process.
3. `verify`: when the trial has ended. Is the evidence there, and is it this trial's?
4. `summarize`: numbers for the sweep's matrix, where the evidence was captured or is incomplete.

A whole collector, which a test runs; examples/loss_collector is a package of one:

    class Heartbeat(Collector):
        name = "heartbeat"
        output_subdir = "heartbeat"
        schema = {"type": "object", "additionalProperties": False, "properties": {}}

        def plan(self, launch, options, capture):
            beats = str(capture.artifacts / "beats")
            return launch.with_env({"HEARTBEAT_FILE": beats, "HEARTBEAT_RUN_ID": capture.run_id})

        @contextlib.contextmanager
        def armed(self, options, capture):
            yield
            place = capture()
            (place.artifacts / "beats").write_text(place.run_id)

        def verify(self, artifacts, expected):
            if "beats" not in artifacts.sizes():
                return Verification(Verdict.MISSING, "no file beats: the program did not start")
            if artifacts.read("beats").decode().strip() not in expected.run_ids:
                return Verification(Verdict.STALE, "beats belongs to another trial")
            return Verification(Verdict.CAPTURED, "the program's heart was beating")

Traps: `plan` is pure, so a dry run may call it. `verify` reads files that the measured program could write: use the
`Artifacts` it is given, never a path. What runs in the measured program must never raise into it.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

from aorta_collectors.errors import ArtifactError, LaunchError, OptionsError
from aorta_collectors.launch.value import Launch
from aorta_collectors.options import Options, decode

__all__ = [
    "ArtifactError",
    "Artifacts",
    "Capture",
    "Collector",
    "Expected",
    "Launch",
    "LaunchError",
    "Options",
    "OptionsError",
    "Verdict",
    "Verification",
    "WorkloadStopped",
]


class WorkloadStopped(RuntimeError):
    """Raised by `Collector.armed` on leaving its context: the collector has ended the workload, as its options ask.

    The trial has failed then. It is no error of the workload's or of the host's.
    """


class Verdict(str, enum.Enum):
    """What verification found. Only the satisfied ones let a passing trial pass."""

    CAPTURED = "captured"
    MISSING = "missing"
    STALE = "stale"
    INVALID = "invalid"
    UNATTACHED = "unattached"
    MISAPPLIED = "misapplied"
    INCOMPLETE = "incomplete"
    OFF = "off"
    PRUNED = "pruned"

    @property
    def satisfied(self) -> bool:
        return self in (Verdict.CAPTURED, Verdict.OFF, Verdict.PRUNED)


@dataclass(frozen=True)
class Verification:
    """The answer of `verify`.

    Attributes:
        verdict: What was found.
        reason: One sentence: the finding, and what to do where something is wrong.
        details: Plain JSON for the receipt, such as each rank's state.
    """

    verdict: Verdict
    reason: str
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Capture:
    """Where one trial's evidence goes.

    Attributes:
        artifacts: Directory for the collector's files; it exists and is empty when the program starts.
        run_id: Unique to the trial, and to the rank where the sweep itself runs under torchrun. Whatever is written
            carries it, so that old files cannot pass for new ones.
    """

    artifacts: Path
    run_id: str


@dataclass(frozen=True)
class Expected:
    """What verification holds the artifacts against.

    Attributes:
        options: The collect: block that was asked for.
        run_ids: Each artifact must carry one of these.
        route: How the collector got into the program (`Launch.route`), for a helpful reason.
        world_size: Ranks that must have written, where the host knows it; None where only the artifacts can say.
    """

    options: Options
    run_ids: frozenset[str]
    route: str = "front-end"
    world_size: int | None = None


class Artifacts(Protocol):
    """Read access to one collector's directory, safe against links that the measured program may have put there."""

    def sizes(self) -> Mapping[str, int]:
        """Regular files by name, in bytes. Links, directories and devices are not listed."""

    def read(self, name: str, limit_bytes: int = ...) -> bytes:
        """A file's content. Raises ArtifactError if it cannot be read, or is larger than the limit."""

    def lines(self, name: str) -> Iterator[bytes]:
        """A file's lines with their ends, without holding the file in memory."""


class Collector(ABC):
    """A kind of evidence. Instances hold no state: the same one serves all trials of a process.

    Attributes:
        name: The name in a recipe's collect: block, and of the entry point.
        output_subdir: Directory below the trial's collector directory. Its files must not be named trial_*.json,
            since the host takes those for trials.
        summaries: Patterns of the file names that `retain: summary` keeps.
        schema: JSON Schema (2020-12) of the decoded options. Values come as strings and are decoded by the schema's
            "type": an integer from "10", a boolean from "0" or "1", an array from "a,b", an object from JSON text.
    """

    name: ClassVar[str]
    output_subdir: ClassVar[str]
    summaries: ClassVar[tuple[str, ...]] = ()
    schema: ClassVar[Mapping[str, Any]]

    def __init_subclass__(cls, *, abstract: bool = False, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if abstract:
            return  # what several collectors share: `class Base(Collector, abstract=True)`
        for attribute in ("name", "output_subdir"):
            if not isinstance(getattr(cls, attribute, None), str):
                raise TypeError(f"{cls.__module__}.{cls.__qualname__} needs a class attribute {attribute}: str")
        if hasattr(cls, "schema"):
            import jsonschema

            try:
                jsonschema.Draft202012Validator.check_schema(cls.schema)
            except jsonschema.SchemaError as error:
                raise TypeError(f"{cls.__module__}.{cls.__qualname__}.schema: {error.message}") from None

    def validate(self, raw: Mapping[str, str] | None) -> Options:
        """Decode and check a collect: block. Raises OptionsError with the path, the fault and the fix."""
        import jsonschema

        return decode(raw, self.schema, jsonschema.Draft202012Validator(self.schema))

    def recall(self, raw: Mapping[str, str]) -> Options:
        """Decode the options that a receipt has kept. What they refer to, a file say, may be gone by now."""
        return self.validate(raw)

    def check_in_process(self, options: Options) -> None:  # noqa: B027  (nothing to check is the common case)
        """Raise OptionsError if these options cannot be honoured for a workload inside the host's process."""

    @abstractmethod
    def plan(self, launch: Launch, options: Options, capture: Capture) -> Launch:
        """The launch with this collector in it. Pure: it may run in a dry run, and more than once.

        Raises:
            LaunchError: The collector cannot be attached to such a launch.
        """

    @abstractmethod
    def armed(self, options: Options, capture: Callable[[], Capture]) -> AbstractContextManager[None]:
        """A context in which workloads of this process are observed.

        Args:
            capture: To be called when something is first written: on ranks other than 0 of a sweep that runs under
                torchrun, the directory is local to the rank, and its files are moved to rank 0's when the trial ends.

        Raises:
            WorkloadStopped: On leaving it, where the collector has ended the workload.
        """

    @abstractmethod
    def verify(self, artifacts: Artifacts, expected: Expected) -> Verification:
        """Say whether the evidence is there. There is no default: "all fine" would be a lie."""

    def summarize(self, artifacts: Artifacts) -> Mapping[str, float | int | str]:
        """Metrics of captured or incomplete evidence, named <collector>_<metric>. Numbers reach the sweep's matrix.

        Some names have a meaning to a `script` workload, whose trial they decide or describe: <collector>_steps, and
        <collector>_first_nonfinite_step and <collector>_first_bad_step with _layer, _kind and _rank beside them.
        """
        return {}

    def step_times_ms(self, artifacts: Artifacts) -> Sequence[float]:
        """Milliseconds that the program's steps took, in their order, where this collector has a clock for them."""
        return ()
