"""Whether what one process wrote holds what its options ask for."""

from __future__ import annotations

from aorta_collectors.api import Artifacts, Verdict
from aorta_collectors.artifacts.process import Fault
from aorta_collectors.numerics.config import Config
from aorta_collectors.numerics.verify.caveats import why_unseen
from aorta_collectors.numerics.verify.reading import Contents, Process, dropped, payload_bytes


def check_contents(artifacts: Artifacts, process: Process, contents: Contents, config: Config) -> None:
    """Raise Fault if something is lacking: unattached, incomplete, or invalid where the summary says otherwise.

    A filter (`steps`) may keep anything but the steps themselves from being written; whether its words match something
    is for the summary to say.
    """
    if process.settled_steps == 0:
        return
    if config.traces and not contents.step_spans and not dropped(process.summary, "spans"):
        raise Fault(Verdict.INVALID, f"spans_{process.stem}.jsonl: no step among {contents.lines['spans']} span(s)")
    if config.measures_steps:
        _check_steps(process, contents)
    if config.reads_layers and not config.steps:
        _check_stats(process, contents)
    if config.keeps_payload:
        _check_payload(artifacts, process)
    if config.profiles:
        _check_bricks(process, config)


def _check_steps(process: Process, contents: Contents) -> None:
    """Each step has its line, but those that there was no room for."""
    lines = contents.lines["steps"]
    if lines != len(contents.measured):
        raise Fault(Verdict.INVALID, f"steps_{process.stem}.jsonl: {lines} lines of {len(contents.measured)} steps")
    lacking = process.settled_steps - lines - dropped(process.summary, "steps")
    if lacking > 0:
        raise Fault(Verdict.INCOMPLETE, f"rank {process.rank}: {lacking} of {process.steps} steps have no line")


def _check_stats(process: Process, contents: Contents) -> None:
    if process.is_behind:
        return
    summary = process.summary
    if not (summary.get("tensors_read") or summary.get("tensors_checked")):
        raise Fault(
            Verdict.UNATTACHED,
            f"rank {process.rank} ran {process.steps} step(s), but no module passed a readable tensor"
            f"{why_unseen(summary)}",
        )
    if summary.get("tensors_read") and not contents.lines["stats"] and not dropped(summary, "stats"):
        raise Fault(
            Verdict.INVALID, f"stats_{process.stem}.jsonl: no line, but tensors_read is {summary['tensors_read']}"
        )


def _check_payload(artifacts: Artifacts, process: Process) -> None:
    told = process.summary.get("payload")
    if told is None:
        raise Fault(
            Verdict.INCOMPLETE, f"rank {process.rank}: nothing is said of the tensors that trace: payload keeps"
        )
    sizes, files, size = payload_bytes(artifacts, process), told.get("files", 0), told.get("bytes", 0)
    if len(sizes) < files or sum(sizes) < size:
        raise Fault(
            Verdict.INVALID,
            f"payload_{process.stem}_step<N>.safetensors: {len(sizes)} file(s) of {sum(sizes)} bytes, but the summary "
            f"says {files} with tensors of {size} bytes",
        )


def _check_bricks(process: Process, config: Config) -> None:
    summary = process.summary
    if summary.get("profile_excluded"):
        raise Fault(Verdict.INCOMPLETE, f"rank {process.rank}: profile: {summary['profile_excluded']}")
    if not summary.get("bricks") and not config.steps and not process.is_behind:
        raise Fault(
            Verdict.INCOMPLETE,
            f"rank {process.rank} ran {process.steps} step(s), but no brick was timed{why_unseen(summary)}",
        )
