"""Reading what layer_numerics left: summaries and records, each whole, to the schema, and of this trial."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson

from aorta_collectors.api import Artifacts, Expected, Verdict
from aorta_collectors.errors import ArtifactError
from aorta_collectors.layer_numerics.signals import NOTED, note_name, told
from aorta_collectors.schema_check import first_fault, validator

SUMMARY = re.compile(r"summary_(rank\d+(?:_p\d+)?)\.json$")
_FORK_NOTE = re.compile(r"unobserved_p\d+\.json$")
# jsonschema takes some 50 us a record, so a long file is checked in full against the fields that matter, and against
# the schema at its beginning only.
_FULLY_CHECKED_RECORDS = 200
_NAMES = 1000
_IDENTITY = ("rank", "pid", "host")


@dataclass(frozen=True)
class Process:
    """One process's summary, and the stem of its files' names, such as rank0.

    Attributes:
        killed_by: Of a process that a signal has ended, which one and where; None where nobody noted it.
    """

    stem: str
    summary: Mapping[str, Any]
    killed_by: str | None = None

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
        """Nothing but its death has ended it."""
        return bool(self.summary.get("status", "complete") == "running")

    @property
    def is_behind(self) -> bool:
        """Whether the summary may say less than the records: what could not be written can be the last summary."""
        return self.running or bool(self.summary.get("write_error"))

    @property
    def ended_by(self) -> str:
        """exit, or what else has ended the program; empty where that is not known."""
        if self.running:
            return self.killed_by or ""
        return str(self.summary.get("ended_by") or "exit")

    def state(self) -> dict[str, Any]:
        """For the receipt."""
        keys = (
            *("rank", "pid", "host", "status", "steps_seen", "watched_count", "records_written"),
            *("records_cut", "tensors_unreadable", "unobserved_names", "opaque_names", "hook_errors"),
            *("follow_mode", "stage_reads_active", "origin", "warnings"),
        )
        return {
            "files": self.stem,
            **{key: self.summary.get(key) for key in keys},
            "ended_by": self.killed_by or self.summary.get("ended_by"),
        }


class Fault(Exception):
    """A check that does not hold."""

    def __init__(self, verdict: Verdict, reason: str) -> None:
        super().__init__(reason)
        self.verdict, self.reason = verdict, reason


def is_stock(expected: Expected) -> bool:
    """Whether the stock logger was asked for, whose files carry less."""
    return expected.options.values.get("frontend") == "aorta"


def read_processes(artifacts: Artifacts, expected: Expected) -> list[Process]:
    """The processes that left a summary for this trial. Raises Fault (missing, invalid, stale)."""
    checker = validator("layer_numerics.summary")
    processes = []
    for name in artifacts.sizes():
        found = SUMMARY.match(name)
        if not found:
            continue
        try:
            summary = orjson.loads(artifacts.read(name))
        except (orjson.JSONDecodeError, ArtifactError) as error:
            raise Fault(Verdict.INVALID, f"{name}: {error}") from None
        fault = first_fault(checker, summary)
        if fault is not None:
            raise Fault(Verdict.INVALID, f"{name}: {fault[0]}: {fault[1]}")
        process = Process(found.group(1), summary)
        processes.append(
            replace(process, killed_by=_killed_by(artifacts, process.stem)) if process.running else process
        )
    if not processes:
        raise Fault(Verdict.MISSING, f"no summary_rank<N>.json: {_why_nothing(expected)}")
    if is_stock(expected):
        return processes  # it writes no run id; the directory was emptied before the launch
    current = [process for process in processes if process.summary.get("run_id") in expected.run_ids]
    if len(current) != len(processes):
        other = next(process for process in processes if process not in current)
        raise Fault(
            Verdict.STALE,
            f"summary_{other.stem}.json is from another run (run id {other.summary.get('run_id')}, "
            f"process {other.summary['pid']}), not from this trial",
        )
    return current


def _killed_by(artifacts: Artifacts, stem: str) -> str | None:
    for signal_name in NOTED:
        with contextlib.suppress(ArtifactError):
            note = artifacts.read(note_name(signal_name, stem)).decode(errors="replace")
            if note:
                return told(signal_name, note)
    return None


def check_records(artifacts: Artifacts, process: Process) -> frozenset[str]:
    """Read a process's records to the last one; the names of followed tensors. Raises Fault (invalid, stale)."""
    name = f"layers_{process.stem}.jsonl"
    if name not in artifacts.sizes():
        raise Fault(Verdict.INVALID, f"{name} is missing beside its summary: the program, or what it ran, removed it")
    checker = validator("layer_numerics.record")
    count = 0
    followed: set[str] = set()
    try:
        for count, line in enumerate(artifacts.lines(name), start=1):
            if not line.endswith(b"\n"):
                raise Fault(Verdict.INVALID, f"{name}: line {count} is torn off")
            try:
                record = orjson.loads(line)
            except orjson.JSONDecodeError as error:
                raise Fault(Verdict.INVALID, f"{name}: line {count}: {error}") from None
            fault = first_fault(checker, record) if count <= _FULLY_CHECKED_RECORDS else _quick_fault(record)
            if fault is not None:
                raise Fault(Verdict.INVALID, f"{name}: line {count}: {fault[0]}: {fault[1]}")
            if any(record[key] != process.summary[key] for key in _IDENTITY):
                raise Fault(Verdict.STALE, f"{name}: line {count} is from process {record['pid']}, not from this trial")
            if record.get("direction") == "pipeline" and len(followed) < _NAMES:
                followed.add(record["layer_name"])
            if record["step"] > process.steps:
                raise Fault(Verdict.INVALID, f"{name}: line {count}: step {record['step']} of {process.steps}")
    except ArtifactError as error:
        raise Fault(Verdict.INVALID, str(error)) from None
    written = int(process.summary["records_written"])
    if count < written or (count > written and not process.is_behind):
        raise Fault(Verdict.INVALID, f"{name}: {count} line(s), but the summary says {written}")
    return frozenset(followed)


def _quick_fault(record: Any) -> tuple[str, str] | None:
    if not isinstance(record, dict):
        return "", "must be an object"
    for key, kind in (("step", int), ("layer_name", str), ("role", str), ("bad", bool), ("pid", int), ("rank", int)):
        if not isinstance(record.get(key), kind):
            return key, f"must be of type {kind.__name__}"
    return ("host", "is missing") if "host" not in record else None


def check_forks(artifacts: Artifacts, expected: Expected) -> None:
    """Raise Fault (incomplete) if a forked child trained a model where nothing is observed."""
    for name in artifacts.sizes():
        if not _FORK_NOTE.match(name):
            continue
        try:
            note = orjson.loads(artifacts.read(name))
            ours, pid = note["run_id"] in expected.run_ids, note["pid"]
        except (orjson.JSONDecodeError, ArtifactError, KeyError, TypeError) as error:
            raise Fault(Verdict.INVALID, f"{name}: {type(error).__name__}: {error}") from None
        if ours:
            raise Fault(
                Verdict.INCOMPLETE,
                f"process {pid}, forked by an observed one, trained a model, and forked processes are not observed; "
                "start it with the spawn method",
            )


def _why_nothing(expected: Expected) -> str:
    if expected.route == "environment":
        return (
            "no Python process of the command imported torch, or it was started with an emptied environment, -S, -E "
            "or -I; run the script through `python -m aorta_collectors.layer_numerics` inside the command"
        )
    if expected.route == "in-process":
        return "the workload did not import torch in aorta's process"
    return "the program ended before it imported torch, was killed, or removed its artifacts"
