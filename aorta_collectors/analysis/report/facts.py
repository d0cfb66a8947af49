"""How a trial was run, and what its evidence lacks: options, launch, how to run it again, cost, warnings, versions."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aorta_collectors.analysis.captures import Process, Trial

_FRONTEND, _STANDALONE = "aorta_collectors.frontend", "aorta_collectors.layer_numerics"
_INTO = "nanlog_out"
_MOST_NAMES = 12
# What is not observed, by the summary's fields, each a list of names.
_HOLES = {
    "unobserved_names": "watched, but never called",
    "opaque_names": "run by torch.compile or TorchScript, where calls are not seen",
    "origin_unscanned": "too large to be read for the origin",
    "unmatched_groups": "watch groups that match no module",
    "unmatched_bounds": "bounds that match nothing that was read",
    "unmatched_follows": "follow entries that match no module",
    "unfound_tensors": "tensors that no batch had",
}
_COUNTS = {
    "records_cut": "records not written, because of NANLOG_MAX_RECORDS",
    "tensors_unreadable": "tensors that could not be read",
    "hook_errors": "errors within hooks",
    "roots_cut": "further models, not listed",
}


@dataclass(frozen=True)
class Overhead:
    """What observing one process cost; milliseconds per step, medians and 95th percentiles; None where not measured."""

    process: str
    steps: int | None
    step_p50: float | None
    step_p95: float | None
    hook_p50: float | None
    hook_p95: float | None
    drain_p50: float | None
    drain_p95: float | None
    share: float | None


@dataclass(frozen=True)
class Facts:
    """Of one trial.

    Attributes:
        options: The collect: block in force.
        variables: The cell's own environment variables.
        command: As it was launched, for a shell; None where a workload ran inside of aorta.
        environment: What the collector added to the launch's environment.
        route: How the collector got into the program, and a note on it.
        again: A command that runs this trial alone with the collector, without a sweep; None where none is known.
        config: The configuration that was in force in the program.
        overhead: By process.
        notes: Warnings, and what was not observed, a sentence each.
        versions: Of what ran.
    """

    options: Mapping[str, str]
    variables: Mapping[str, str]
    command: str | None
    environment: Mapping[str, str]
    route: str
    again: str | None
    config: Mapping[str, Any]
    overhead: tuple[Overhead, ...]
    notes: tuple[str, ...]
    versions: Mapping[str, str]


def facts_of(trial: Trial) -> Facts:
    receipt = trial.receipt
    launch = receipt.launch if receipt is not None and isinstance(receipt.launch, Mapping) else {}
    argv = [str(word) for word in launch.get("argv") or ()]
    environment = {str(name): str(value) for name, value in dict(launch.get("env") or {}).items()}
    variables = _variables(trial.record)
    summaries = [process.summary for process in trial.processes]
    return Facts(
        options=dict(receipt.options) if receipt is not None else {},
        variables=variables,
        command=shlex.join(argv) if argv else None,
        environment=environment,
        route=" - ".join(filter(None, (receipt.route, receipt.note))) if receipt is not None else "",
        again=_again(argv, environment, variables),
        config=summaries[0].get("config") or {} if summaries else {},
        overhead=tuple(_overhead(process) for process in trial.processes),
        notes=tuple(dict.fromkeys(_notes(trial.processes))),
        versions={
            name: ", ".join(sorted({str(summary[key]) for summary in summaries if summary.get(key)})[:_MOST_NAMES])
            for name, key in (("collector", "engine"), ("torch", "torch"), ("host", "host"))
        },
    )


def _variables(record: Mapping[str, Any]) -> dict[str, str]:
    config = record.get("config")
    found = config.get("_aorta_trial_env") if isinstance(config, Mapping) else None
    return {str(name): str(value) for name, value in found.items()} if isinstance(found, Mapping) else {}


def _again(argv: Sequence[str], environment: Mapping[str, str], variables: Mapping[str, str]) -> str | None:
    """A launch that the front-end was put into, with the stand-alone collector in its place."""
    if _FRONTEND not in argv:
        return None
    options = {name: value for name, value in environment.items() if name.startswith("NANLOG_")}
    options.pop("NANLOG_RUN_ID", None)
    words = {**variables, **options, "NANLOG_DIR": _INTO}
    command = [_STANDALONE if word == _FRONTEND else word for word in argv]
    # A shell would take another name for a command.
    set_there = (
        f"{name}={shlex.quote(value)}" for name, value in words.items() if name.isascii() and name.isidentifier()
    )
    return " ".join([*set_there, shlex.join(command)])


def _overhead(process: Process) -> Overhead:
    found = process.summary.get("overhead")
    found = found if isinstance(found, Mapping) else {}
    times = [f"{what}_ms_{which}" for what in ("step", "hook", "drain") for which in ("p50", "p95")]
    return Overhead(process.stem, *(found.get(key) for key in ("steps_measured", *times, "share_of_step")))


def _notes(processes: Iterable[Process]) -> Iterable[str]:
    for process in processes:
        summary = process.summary
        if summary.get("status") != "complete":
            yield f"{process.stem}: status {summary.get('status')}; what its last step left may be missing"
        if summary.get("ended_by") not in (None, "exit"):
            yield f"{process.stem}: ended by {summary['ended_by']}"
        for warning in summary.get("warnings") or ():
            yield str(warning)
        if summary.get("write_error"):
            yield f"{process.stem}: writing stopped: {summary['write_error']}"
        for key, what in _COUNTS.items():
            if summary.get(key):
                first = f": {summary['first_hook_error']}" if key == "hook_errors" else ""
                yield f"{summary[key]} {what}{first}"
        for key, what in _HOLES.items():
            if summary.get(key):
                yield f"{what}: {_some(summary[key])}"
        if summary.get("skipped_params"):
            yield f"parameters not read: {_some([_parameter(entry) for entry in summary['skipped_params']])}"
        for reason, skipped in (summary.get("tensors_skipped") or {}).items():
            yield f"tensors skipped, {reason}: {_skipped(skipped)}"
        for reason, count in (summary.get("graph_breaks") or {}).items():
            yield f"torch.compile ended a graph early {count} time(s): {reason}"


def _parameter(entry: Mapping[str, Any]) -> str:
    name = ".".join(str(entry[key]) for key in ("layer_name", "param_name") if entry.get(key)) or "?"
    return f"{name} ({entry['reason']})" if entry.get("reason") else str(name)


def _skipped(skipped: Any) -> str:
    if not isinstance(skipped, Mapping):
        return str(skipped)
    layers = next((value for value in skipped.values() if isinstance(value, list)), [])
    count = next((value for value in skipped.values() if isinstance(value, int)), len(layers))
    return f"{count}, first in {_some(layers)}" if layers else str(count)


def _some(names: Sequence[Any]) -> str:
    shown = ", ".join(str(name) for name in names[:_MOST_NAMES])
    return f"{shown} and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else shown
