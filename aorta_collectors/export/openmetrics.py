"""The summaries' numbers and the receipts' verdicts as OpenMetrics text, for what scrapes or pushes metrics.

The format is OpenMetrics 1.0: https://github.com/prometheus/OpenMetrics/blob/v1.0.0/specification/OpenMetrics.md
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aorta_collectors.analysis.captures import Captures, Process, Trial
from aorta_collectors.api import Verdict

Labels = Mapping[str, str]
_STATUSES = ("running", "ended", "complete")


@dataclass(frozen=True)
class _Family:
    """A metric family; its samples are (what follows the name, labels, value)."""

    name: str
    kind: str
    help: str
    samples: Callable[[Captures], Iterator[tuple[str, Labels, float]]]
    unit: str = ""


def write_openmetrics(captures: Captures, target: Path, numerics: Captures | None = None) -> None:
    """Write a file. Families without a sample are left out.

    Args:
        captures: Of layer_numerics; may have no trials.
        numerics: Of numerics; None where it left nothing.
    """
    families = [(family, captures) for family in _of_layer_numerics()]
    if numerics is not None:
        families += [(family, numerics) for family in _of_numerics()]
    families += [(family, captures if captures.trials or numerics is None else numerics) for family in _of_trials()]
    with target.open("w", encoding="utf-8", errors="backslashreplace") as stream:
        for family, of in families:
            begun = False
            for suffix, labels, value in family.samples(of):
                if not begun:
                    stream.write(f"# TYPE {family.name} {family.kind}\n")
                    stream.write(f"# UNIT {family.name} {family.unit}\n" if family.unit else "")
                    stream.write(f"# HELP {family.name} {_escaped(family.help)}\n")
                    begun = True
                listed = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())
                stream.write(f"{family.name}{suffix}{{{listed}}} {_number(value)}\n")
        stream.write("# EOF\n")


def _of_layer_numerics() -> Iterator[_Family]:
    for field, what in (
        ("steps_seen", "Steps begun."),
        ("evaluation_steps", "Steps that began where no gradients are recorded."),
        ("records_written", "Records written."),
        ("records_cut", "Records not written because of NANLOG_MAX_RECORDS."),
        ("oob_records", "Records with elements out of range."),
        ("tensors_unreadable", "Tensors passed over."),
        ("hook_errors", "Exceptions caught in hooks."),
    ):
        name = f"aorta_layer_numerics_{field.removesuffix('_seen').removesuffix('_written')}"
        yield _Family(name, "counter", what, _each_process("_total", field))
    for found in ("first_bad", "first_nonfinite", "first_oob"):
        name = f"aorta_layer_numerics_{found}"
        step = _each_process("", found, "step")
        yield _Family(f"{name}_step", "gauge", f"Step of {found}; absent where there is none.", step)
        yield _Family(name, "info", f"Where {found} was.", _places(found))
    for part, what in (
        ("hook", "In hooks, of one step."),
        ("drain", "Handing on and writing what was seen in one step."),
        ("step", "The step itself, with these."),
    ):
        name = f"aorta_layer_numerics_{part}_time_seconds"
        yield _Family(name, "gauge", what, _quantiles("overhead", part), unit="seconds")
    share = _each_process("", "overhead", "share_of_step")
    name = "aorta_layer_numerics_overhead_ratio"
    yield _Family(name, "gauge", "Part of the steps' time that observing took.", share, unit="ratio")
    yield _statuses("aorta_layer_numerics_status")


def _of_numerics() -> Iterator[_Family]:
    for field, what in (
        ("steps_seen", "Steps begun."),
        ("evaluation_steps", "Steps in which no gradients were recorded."),
        ("optimizer_steps", "Optimizer steps taken."),
        ("tensors_read", "Tensors of which there are statistics."),
        ("hook_errors", "Exceptions caught in hooks."),
    ):
        yield _Family(f"aorta_numerics_{field.removesuffix('_seen')}", "counter", what, _each_process("_total", field))
    for field, what in (
        ("tokens_per_s", "Tokens a second, median over steps."),
        ("samples_per_s", "Samples a second, median over steps."),
    ):
        yield _Family(f"aorta_numerics_{field}", "gauge", what, _each_process("", "step_metrics", field))
    mfu = _each_process("", "step_metrics", "mfu")
    yield _Family("aorta_numerics_mfu_ratio", "gauge", "Model FLOPs utilization, median.", mfu, unit="ratio")
    times = _quantiles("phases", "step")
    yield _Family("aorta_numerics_step_time_seconds", "gauge", "A step.", times, unit="seconds")
    yield _Family(
        "aorta_numerics_first_bad_step",
        "gauge",
        "Step of the first NaN or Inf.",
        _each_process("", "first_bad", "step"),
    )
    taken = _each_process("_total", "escalations", "taken")
    yield _Family("aorta_numerics_escalations", "counter", "Closer looks at bricks.", taken)
    share = _each_process("", "overhead", "share_of_step")
    what = "Part of the steps' time that observing took."
    yield _Family("aorta_numerics_overhead_ratio", "gauge", what, share, unit="ratio")
    yield _statuses("aorta_numerics_status")


def _of_trials() -> Iterator[_Family]:
    yield _Family("aorta_evidence_verdict", "stateset", "What verification found.", _verdicts)
    yield _Family("aorta_trial_passed", "gauge", "1 where the trial passed, 0 where it did not.", _passed)
    name = "aorta_trial_wall_clock_seconds"
    yield _Family(name, "gauge", "Duration of the trial.", _wall_clock, unit="seconds")


def _each_process(suffix: str, *keys: str) -> Callable[[Captures], Iterator[Any]]:
    """A sample for each process whose summary has a value there."""

    def samples(captures: Captures) -> Iterator[tuple[str, Labels, float]]:
        for labels, summary in _processes(captures):
            found: Any = summary
            for key in keys:
                found = found.get(key) if isinstance(found, Mapping) else None
            if found is not None:
                yield suffix, labels, found

    return samples


def _places(found: str) -> Callable[[Captures], Iterator[Any]]:
    def samples(captures: Captures) -> Iterator[tuple[str, Labels, float]]:
        for labels, summary in _processes(captures):
            if place := summary.get(found):
                names = ("layer", "role", "direction", "kind", "phase")
                yield "_info", {**labels, **{name: str(place[name]) for name in names if place.get(name)}}, 1

    return samples


def _quantiles(field: str, part: str) -> Callable[[Captures], Iterator[Any]]:
    """Of a part of the summaries' field that has <part>_ms_p50, or <part>: {p50_ms: ...}; milliseconds there."""

    def samples(captures: Captures) -> Iterator[tuple[str, Labels, float]]:
        for labels, summary in _processes(captures):
            found = summary.get(field) or {}
            for mark in ("p50", "p95", "p99"):
                milliseconds = (
                    (found.get(part) or {}).get(f"{mark}_ms") if part in found else found.get(f"{part}_ms_{mark}")
                )
                if milliseconds is not None:
                    yield "", {**labels, "statistic": mark}, round(milliseconds / 1000, 9)

    return samples


def _statuses(name: str) -> _Family:
    def samples(captures: Captures) -> Iterator[tuple[str, Labels, float]]:
        for labels, summary in _processes(captures):
            for status in _STATUSES if summary.get("status") else ():
                yield "", {**labels, name: status}, summary["status"] == status

    return _Family(name, "stateset", "How far the process is.", samples)


def _verdicts(captures: Captures) -> Iterator[tuple[str, Labels, float]]:
    for trial in captures.trials:
        for receipt in trial.receipts.values():
            for verdict in Verdict:
                labels = {**_of_trial(trial), "collector": receipt.collector, "aorta_evidence_verdict": verdict.value}
                yield "", labels, receipt.verdict == verdict


def _passed(captures: Captures) -> Iterator[tuple[str, Labels, float]]:
    for trial in captures.trials:
        result = trial.record.get("result")
        if isinstance(result, dict) and isinstance(result.get("passed"), bool):
            yield "", _of_trial(trial), result["passed"]


def _wall_clock(captures: Captures) -> Iterator[tuple[str, Labels, float]]:
    for trial in captures.trials:
        seconds = trial.record.get("wall_clock_sec")
        if isinstance(seconds, int | float) and math.isfinite(seconds):
            yield "", _of_trial(trial), seconds


def _processes(captures: Captures) -> Iterator[tuple[Labels, Mapping[str, Any]]]:
    for trial in captures.trials:
        for process in trial.processes:
            yield _of_process(trial, process), process.summary


def _of_process(trial: Trial, process: Process) -> dict[str, str]:
    return {**_of_trial(trial), "rank": str(process.rank), "process": process.stem}


def _of_trial(trial: Trial) -> dict[str, str]:
    return dict(zip(("run", "cell", "trial"), trial.key, strict=True))


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if isinstance(value, bool) else repr(value)
