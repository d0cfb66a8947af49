"""Reading what layer_numerics left: summaries and records, each whole, to the schema, and of this trial."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from aorta_collectors import strict_json
from aorta_collectors.api import Artifacts, Expected, Verdict
from aorta_collectors.errors import ArtifactError
from aorta_collectors.layer_numerics.signals import NOTED, note_name, told
from aorta_collectors.schema_check import first_fault, validator

SUMMARY = re.compile(r"summary_(rank\d+(?:_p\d+)?)\.json$")
_FORK_NOTE = re.compile(r"unobserved_p\d+\.json$")
# Records are checked together as far as all is well with them; the text of a batch, in bytes.
_BATCH_BYTES = 1 << 20
_NAMES = 1000
# Of all summaries of a trial, which are held in memory together and take some ten times as much there.
_SUMMARIES_BYTES = 256 << 20
# Of a list or a text in the receipt, which is to stay small beside summaries of any size.
_SHOWN_ITEMS = 20
_SHOWN_CHARACTERS = 500
# No job has more ranks, and everything that counts them would be lost in a larger number.
_MOST_RANKS = 1 << 20
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
            *("rank", "pid", "host", "status", "steps_seen", "evaluation_steps"),
            *("watched_count", "records_written"),
            *("records_cut", "tensors_unreadable", "unobserved_names", "opaque_names", "hook_errors"),
            *("follow_mode", "stage_reads_active", "origin", "warnings"),
        )
        return {
            "files": self.stem,
            **{key: _short(self.summary.get(key)) for key in keys},
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


def summaries_of(artifacts: Artifacts) -> list[dict[str, Any]]:
    """All summaries, in the order of their names, of artifacts that have been verified."""
    return [strict_json.loads(artifacts.read(name)) for name in sorted(artifacts.sizes()) if SUMMARY.match(name)]


def read_processes(artifacts: Artifacts, expected: Expected) -> list[Process]:
    """The processes that left a summary for this trial. Raises Fault (missing, invalid, stale)."""
    checker = validator("layer_numerics.summary")
    processes = []
    summaries = {name: found.group(1) for name in artifacts.sizes() if (found := SUMMARY.match(name))}
    size = sum(artifacts.sizes()[name] for name in summaries)
    if size > _SUMMARIES_BYTES:
        raise Fault(Verdict.INVALID, f"summaries of {size} bytes, more than the {_SUMMARIES_BYTES} that are taken in")
    for name, stem in summaries.items():
        try:
            summary = strict_json.loads(artifacts.read(name))
        except (ValueError, ArtifactError) as error:
            raise Fault(Verdict.INVALID, f"{name}: {error}") from None
        fault = first_fault(checker, summary)
        if fault is not None:
            raise Fault(Verdict.INVALID, f"{name}: {fault[0]}: {fault[1]}")
        for key in ("rank", "world_size"):
            if summary.get(key, 0) > _MOST_RANKS:
                raise Fault(Verdict.INVALID, f"{name}: {key}: must be at most {_MOST_RANKS}, got {summary[key]}")
        process = Process(stem, summary)
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
    """Read a process's records to the last one; the names of followed tensors.

    Raises:
        Fault: invalid, stale; incomplete where the process died in the middle of a line.
    """
    name = f"layers_{process.stem}.jsonl"
    if name not in artifacts.sizes():
        raise Fault(Verdict.INVALID, f"{name} is missing beside its summary: the program, or what it ran, removed it")
    count = 0
    followed: set[str] = set()
    try:
        for lines in _batches(artifacts.lines(name)):
            torn = not lines[-1].endswith(b"\n")
            if torn:
                lines.pop()
            records = _records(name, count, lines, process)
            if len(followed) < _NAMES:
                followed |= {record["layer_name"] for record in records if record["direction"] == "pipeline"}
            count += len(lines)
            if torn and not process.is_behind:
                raise Fault(Verdict.INVALID, f"{name}: line {count + 1} is torn off")
            if torn and process.running:
                raise Fault(
                    Verdict.INCOMPLETE,
                    f"{name}: line {count + 1} is torn off: rank {process.rank} died while it wrote, in step "
                    f"{process.steps}; evidence ends there",
                )
    except ArtifactError as error:
        raise Fault(Verdict.INVALID, str(error)) from None
    written = int(process.summary["records_written"])
    if count < written or (count > written and not process.is_behind):
        raise Fault(Verdict.INVALID, f"{name}: {count} line(s), but the summary says {written}")
    return frozenset(followed)


def _batches(lines: Iterator[bytes]) -> Iterator[list[bytes]]:
    batch: list[bytes] = []
    size = 0
    for line in lines:
        batch.append(line)
        size += len(line)
        if size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _records(name: str, before: int, lines: Sequence[bytes], process: Process) -> list[dict[str, Any]]:
    """The records of some lines, of which `before` others stand in front. Raises Fault for the first bad one."""
    summary = process.summary
    try:
        records = strict_json.loads_lines(lines)
        if (
            validator("layer_numerics.record").fits(records)
            and all({record[key] for record in records} == {summary[key]} for key in _IDENTITY)
            and max(record["step"] for record in records) <= process.steps
        ):
            return records
    except ValueError:
        pass
    # Something may be wrong with one of them, and the person who reads of it wants to know with which.
    return [_record(f"{name}: line {number}", line, process) for number, line in enumerate(lines, start=before + 1)]


def _record(place: str, line: bytes, process: Process) -> dict[str, Any]:
    try:
        record: dict[str, Any] = strict_json.loads(line)
    except ValueError as error:
        raise Fault(Verdict.INVALID, f"{place}: {error}") from None
    fault = first_fault(validator("layer_numerics.record"), record)
    if fault is not None:
        raise Fault(Verdict.INVALID, f"{place}: {fault[0]}: {fault[1]}")
    if any(record[key] != process.summary[key] for key in _IDENTITY):
        raise Fault(Verdict.STALE, f"{place} is from process {record['pid']}, not from this trial")
    if record["step"] > process.steps:
        raise Fault(Verdict.INVALID, f"{place}: step {record['step']} of {process.steps}")
    return record


def _short(value: Any) -> Any:
    """The value with its long texts and lists cut: a receipt is there to be read."""
    if isinstance(value, str) and len(value) > _SHOWN_CHARACTERS:
        return value[:_SHOWN_CHARACTERS] + " ..."
    if isinstance(value, list):
        more = [f"and {len(value) - _SHOWN_ITEMS} more"] if len(value) > _SHOWN_ITEMS else []
        return [*(_short(item) for item in value[:_SHOWN_ITEMS]), *more]
    if isinstance(value, dict):
        return {key: _short(item) for key, item in itertools.islice(value.items(), _SHOWN_ITEMS)}
    return value


def check_forks(artifacts: Artifacts, expected: Expected) -> None:
    """Raise Fault (incomplete) if a forked child trained a model where nothing is observed."""
    for name in artifacts.sizes():
        if not _FORK_NOTE.match(name):
            continue
        try:
            note = strict_json.loads(artifacts.read(name))
            ours, pid = note["run_id"] in expected.run_ids, note["pid"]
        except (ValueError, ArtifactError, KeyError, TypeError) as error:
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
