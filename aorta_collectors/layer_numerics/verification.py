"""Is the evidence of layer_numerics there? Summaries and records against what was asked for."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from aorta_collectors.api import Artifacts, Expected, Verdict, Verification
from aorta_collectors.errors import ArtifactError
from aorta_collectors.layer_numerics.config import Config
from aorta_collectors.schema_check import first_fault, validator

_FORK_NOTE = re.compile(r"unobserved_p\d+\.json$")
_SUMMARY = re.compile(r"summary_(rank\d+(?:_p\d+)?)\.json$")
# jsonschema takes some 50 us a record, so a long file is checked in full against the fields that matter, and against
# the schema at its beginning only.
_FULLY_CHECKED_RECORDS = 200
_IDENTITY = ("rank", "pid", "host")


@dataclass(frozen=True)
class _Process:
    """One process's summary, and the stem of its files' names, such as rank0."""

    stem: str
    summary: Mapping[str, Any]

    @property
    def rank(self) -> int:
        return int(self.summary["rank"])

    @property
    def steps(self) -> int:
        return int(self.summary["steps_seen"])

    @property
    def attached(self) -> bool:
        """Hooks stood somewhere. The stock logger's follow reads at stages without hooking a module."""
        checkpoints = ("watched_count", "pipeline_checkpoints", "forward_checkpoints")
        return any(int(self.summary.get(key, 0)) > 0 for key in checkpoints)

    @property
    def running(self) -> bool:
        return bool(self.summary.get("status", "complete") == "running")

    def state(self) -> dict[str, Any]:
        """For the receipt."""
        keys = (
            *("rank", "pid", "host", "status", "ended_by", "steps_seen", "watched_count", "records_written"),
            *("records_cut", "tensors_unreadable", "unobserved_names", "opaque_names", "hook_errors"),
        )
        return {"files": self.stem, **{key: self.summary.get(key) for key in keys}}


class _Fault(Exception):
    def __init__(self, verdict: Verdict, reason: str) -> None:
        super().__init__(reason)
        self.verdict, self.reason = verdict, reason


def verify(artifacts: Artifacts, expected: Expected) -> Verification:
    processes: list[_Process] = []
    try:
        processes = _read_processes(artifacts, expected)
        for process in processes:
            _check_configuration(process, expected)
        attached = _attached(processes, expected)
        for process in attached:
            _check_records(artifacts, process)
        for process in attached:
            _check_completeness(process)
        _check_forks(artifacts, expected)
        _check_ranks(attached, expected)
    except _Fault as fault:
        return Verification(fault.verdict, fault.reason, {"processes": [process.state() for process in processes]})
    steps = max(process.steps for process in attached)
    modules = max(int(process.summary["watched_count"]) for process in attached)
    ranks = sorted({process.rank for process in attached})
    reason = f"{modules} module(s) over {steps} step(s), {len(ranks)} rank(s)"
    never = sorted({name for process in attached for name in process.summary.get("unobserved_names", ())})
    if never:
        reason += f"; never called: {_some(never)}"
    return Verification(Verdict.CAPTURED, reason, {"processes": [process.state() for process in processes]})


def summarize(artifacts: Artifacts) -> Mapping[str, float | int | str]:
    """Metrics for the matrix: counts over all ranks, and the earliest bad record of any of them."""
    summaries = [orjson.loads(artifacts.read(name)) for name in artifacts.sizes() if _SUMMARY.match(name)]
    metrics: dict[str, float | int | str] = {
        "layer_numerics_records": sum(summary["records_written"] for summary in summaries),
        "layer_numerics_modules": max(summary["watched_count"] for summary in summaries),
        "layer_numerics_steps": max(summary["steps_seen"] for summary in summaries),
        "layer_numerics_ranks": len({summary["rank"] for summary in summaries if summary["watched_count"]}),
    }
    bad = [(summary["first_bad"], summary["rank"]) for summary in summaries if summary["first_bad"] is not None]
    if bad:
        first, rank = min(bad, key=lambda entry: (entry[0]["step"], entry[0]["matmul_calls_so_far"], entry[1]))
        metrics["layer_numerics_first_bad_step"] = first["step"]
        metrics["layer_numerics_first_bad_rank"] = rank
        metrics["layer_numerics_first_bad_layer"] = first["layer"]
        metrics["layer_numerics_first_bad_direction"] = first["direction"]
        metrics["layer_numerics_first_bad_kind"] = first["kind"]
    return metrics


def _is_stock(expected: Expected) -> bool:
    return expected.options.values.get("frontend") == "aorta"


def _read_processes(artifacts: Artifacts, expected: Expected) -> list[_Process]:
    checker = validator("layer_numerics.summary")
    processes = []
    for name in artifacts.sizes():
        found = _SUMMARY.match(name)
        if not found:
            continue
        try:
            summary = orjson.loads(artifacts.read(name))
        except (orjson.JSONDecodeError, ArtifactError) as error:
            raise _Fault(Verdict.INVALID, f"{name}: {error}") from None
        fault = first_fault(checker, summary)
        if fault is not None:
            raise _Fault(Verdict.INVALID, f"{name}: {fault[0]}: {fault[1]}")
        processes.append(_Process(found.group(1), summary))
    if not processes:
        raise _Fault(Verdict.MISSING, f"no summary_rank<N>.json: {_why_nothing(expected)}")
    if _is_stock(expected):
        return processes  # it writes no run id; the directory was emptied before the launch
    current = [process for process in processes if process.summary.get("run_id") in expected.run_ids]
    if len(current) != len(processes):
        other = next(process for process in processes if process not in current)
        raise _Fault(
            Verdict.STALE,
            f"summary_{other.stem}.json is from another run (run id {other.summary.get('run_id')}, "
            f"process {other.summary['pid']}), not from this trial",
        )
    return current


def _why_nothing(expected: Expected) -> str:
    if expected.route == "environment":
        return (
            "no Python process of the command imported torch, or it was started with an emptied environment, -S, -E "
            "or -I; run the script through `python -m aorta_collectors.layer_numerics` inside the command"
        )
    if expected.route == "in-process":
        return "the workload did not import torch in aorta's process"
    return "the program ended before it imported torch, was killed, or removed its artifacts"


def _check_configuration(process: _Process, expected: Expected) -> None:
    summary = process.summary
    where = f"summary_{process.stem}.json"
    if summary.get("spec_error"):
        raise _Fault(Verdict.MISAPPLIED, f"{where}: the spec was not applied: {summary['spec_error']}")
    raw = dict(expected.options.raw)
    if _is_stock(expected):
        if ("NANLOG_SPEC" in raw or "NANLOG_SPEC_FILE" in raw) and not summary.get("spec_applied"):
            raise _Fault(Verdict.MISAPPLIED, f"{where}: the spec was not applied")
        return
    if summary.get("spec_present") != ("NANLOG_SPEC" in raw or "NANLOG_SPEC_FILE" in raw):
        raise _Fault(
            Verdict.MISAPPLIED, f"{where}: spec_source is {summary.get('spec_source')}, which was not asked for"
        )
    if "NANLOG_SPEC_FILE" in raw:
        return  # the file may be gone by now; spec_applied and the schema have been checked
    asked = Config.from_environment(raw).describe()
    got = summary.get("config")
    if got != asked:
        keys = [key for key in asked if not isinstance(got, Mapping) or got.get(key) != asked[key]]
        found = got.get(keys[0]) if isinstance(got, Mapping) and keys else got
        wanted = asked[keys[0]] if keys else asked
        name = keys[0] if keys else "config"
        raise _Fault(Verdict.MISAPPLIED, f"{where}: {name} in force is {found}, asked for {wanted}")


def _attached(processes: list[_Process], expected: Expected) -> list[_Process]:
    """The processes that observed a model. A helper that only imported torch is none."""
    attached = [process for process in processes if process.attached]
    if not attached:
        summary = max(processes, key=lambda process: int(process.summary.get("modules_built", 0))).summary
        if _is_stock(expected):
            why = (
                "the stock logger watched nothing: it attaches to a torchrec DistributedModelParallel only "
                f"(types={summary.get('watch_types')}, names={summary.get('watch_names')}); frontend: native takes "
                "any model"
            )
        elif summary.get("roots"):
            why = (
                f"the watch scope matched no module of {', '.join(summary['roots'])} "
                f"(types={summary.get('watch_types')}, names={summary.get('watch_names')}); names are substrings of "
                "module paths, types are class names"
            )
        elif summary.get("modules_built"):
            why = "the program built PyTorch modules but called none of them"
        else:
            why = "the program built no PyTorch model"
            if expected.route == "front-end":
                why += " itself; processes that it starts (multiprocessing, subprocess) are not observed yet"
        raise _Fault(Verdict.UNATTACHED, why)
    for process in attached:
        if process.steps == 0:
            modules = process.summary["watched_count"]
            why = f"hooks stood on {modules} module(s) of rank {process.rank}, but the model was never called"
            raise _Fault(Verdict.UNATTACHED, why)
        if not process.running and process.summary.get("tensors_observed") == 0:
            why = f"rank {process.rank} ran {process.steps} step(s), but no watched module passed a readable tensor"
            why += _why_unseen(process.summary)
            raise _Fault(Verdict.UNATTACHED, why)
    return attached


def _check_records(artifacts: Artifacts, process: _Process) -> None:
    name = f"layers_{process.stem}.jsonl"
    if name not in artifacts.sizes():
        raise _Fault(Verdict.INVALID, f"{name} is missing beside its summary: the program, or what it ran, removed it")
    checker = validator("layer_numerics.record")
    count = 0
    try:
        for count, line in enumerate(artifacts.lines(name), start=1):
            if not line.endswith(b"\n"):
                raise _Fault(Verdict.INVALID, f"{name}: line {count} is torn off")
            try:
                record = orjson.loads(line)
            except orjson.JSONDecodeError as error:
                raise _Fault(Verdict.INVALID, f"{name}: line {count}: {error}") from None
            fault = first_fault(checker, record) if count <= _FULLY_CHECKED_RECORDS else _quick_fault(record)
            if fault is not None:
                raise _Fault(Verdict.INVALID, f"{name}: line {count}: {fault[0]}: {fault[1]}")
            if any(record[key] != process.summary[key] for key in _IDENTITY):
                raise _Fault(
                    Verdict.STALE, f"{name}: line {count} is from process {record['pid']}, not from this trial"
                )
            if record["step"] > process.steps:
                raise _Fault(Verdict.INVALID, f"{name}: line {count}: step {record['step']} of {process.steps}")
    except ArtifactError as error:
        raise _Fault(Verdict.INVALID, str(error)) from None
    written = int(process.summary["records_written"])
    if count < written or (count > written and not process.running):
        raise _Fault(Verdict.INVALID, f"{name}: {count} line(s), but the summary says {written}")


def _quick_fault(record: Any) -> tuple[str, str] | None:
    if not isinstance(record, dict):
        return "", "must be an object"
    for key, kind in (("step", int), ("layer_name", str), ("role", str), ("bad", bool), ("pid", int), ("rank", int)):
        if not isinstance(record.get(key), kind):
            return key, f"must be of type {kind.__name__}"
    return ("host", "is missing") if "host" not in record else None


def _check_completeness(process: _Process) -> None:
    summary = process.summary
    if summary.get("write_error"):
        raise _Fault(Verdict.INCOMPLETE, f"rank {process.rank} could not write on: {summary['write_error']}")
    if process.running:
        raise _Fault(Verdict.INCOMPLETE, f"rank {process.rank} died in step {process.steps}; evidence ends there")
    if summary.get("hook_errors"):
        raise _Fault(
            Verdict.INCOMPLETE,
            f"rank {process.rank}: {summary['hook_errors']} tensor(s) could not be observed: "
            f"{summary.get('first_hook_error')}",
        )
    if summary.get("opaque_names"):
        raise _Fault(Verdict.INCOMPLETE, f"rank {process.rank} has layers that were not observed{_why_unseen(summary)}")
    ended_by = summary.get("ended_by") or "exit"
    # A program that stops itself over a NaN it has just shown us has been captured; any other exception ended it
    # before it had run its course.
    if ended_by != "exit" and summary["first_bad"] is None:
        raise _Fault(
            Verdict.INCOMPLETE,
            f"rank {process.rank} ended in step {process.steps} with {ended_by}, before anything bad was seen",
        )


def _why_unseen(summary: Mapping[str, Any]) -> str:
    names = summary.get("opaque_names")
    if not names:
        return ""
    return (
        f": torch.compile or TorchScript runs {_some(names)}, and what they run is not seen. Run the cell without them "
        "(TORCH_COMPILE_DISABLE=1, PYTORCH_JIT=0), or watch other layers"
    )


def _some(names: Sequence[str], most: int = 3) -> str:
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown


def _check_forks(artifacts: Artifacts, expected: Expected) -> None:
    for name in artifacts.sizes():
        if not _FORK_NOTE.match(name):
            continue
        try:
            note = orjson.loads(artifacts.read(name))
            ours, pid = note["run_id"] in expected.run_ids, note["pid"]
        except (orjson.JSONDecodeError, ArtifactError, KeyError, TypeError) as error:
            raise _Fault(Verdict.INVALID, f"{name}: {type(error).__name__}: {error}") from None
        if ours:
            raise _Fault(
                Verdict.INCOMPLETE,
                f"process {pid}, forked by an observed one, trained a model, and forked processes are not observed; "
                "start it with the spawn method",
            )


def _check_ranks(attached: list[_Process], expected: Expected) -> None:
    world_size = expected.world_size or max(int(process.summary.get("world_size", 1)) for process in attached)
    missing = sorted(set(range(world_size)) - {process.rank for process in attached})
    if missing:
        text = ", ".join(str(rank) for rank in missing)
        raise _Fault(Verdict.INCOMPLETE, f"no evidence from rank(s) {text} of {world_size}")
