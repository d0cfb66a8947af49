"""Tool gaps: what the tools did not see, or could not decide, so that nobody takes silence for agreement."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aorta_collectors.analysis.bundles.result import Compared
from aorta_collectors.analysis.captures import MEMORY, NUMERICS, SOURCES, TENSORS
from aorta_collectors.artifacts.process import is_in_order
from aorta_collectors.errors import ArtifactError
from aorta_collectors.investigate.files import Run
from aorta_collectors.investigate.report.conclusion import counted
from aorta_collectors.investigate.report.numbers import too_few_steps
from aorta_collectors.investigate.report.subjects import Subject
from aorta_collectors.investigate.report.values import OfPair
from aorta_collectors.printable import printable
from aorta_collectors.report.wording import text

_MOST_NAMES = 8
_MOST_LETTERS = 1000
_ABOUT_VALUES = ("values", "finite")


@dataclass(frozen=True)
class Gap:
    """
    Attributes:
        of: Labels of what it is about.
    """

    text: str
    of: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return {"text": self.text, "of": list(self.of)}


def gaps_of(kind: str, runs: Sequence[Run], subjects: Sequence[Subject], pairs: Sequence[OfPair]) -> list[Gap]:
    """What was not observed or not decided; the same thing in several runs once.

    Args:
        kind: Of the question: what was not asked is no gap.
    """
    found: dict[str, dict[str, None]] = {}
    for label, told in (
        *_of_runs(runs, kind),
        *_of_manifests(subjects),
        *(too_few_steps(subjects) if kind == "timing" else ()),
        *_of_comparisons(pairs),
    ):
        found.setdefault(told, {})[label] = None
    return [Gap(told, tuple(labels)) for told, labels in found.items()]


def _of_runs(runs: Sequence[Run], kind: str) -> Iterator[tuple[str, str]]:
    for run in runs:
        label = run.directory.name
        for point in run.record["points_missing"]:
            yield label, f"nothing was observed at {point}, which was asked for"
        for receipt in run.record["receipts"]:
            if receipt["verdict"] != "captured":
                reason = printable(receipt["reason"], _MOST_LETTERS)
                yield label, f"no evidence of {receipt['collector']}: {receipt['verdict']}: {reason}"
        if kind in _ABOUT_VALUES and run.counts and run.record["tool"] and run.record["finite"] is None:
            yield label, "nobody looked whether values are finite"


def _of_manifests(subjects: Sequence[Subject]) -> Iterator[tuple[str, str]]:
    for subject in subjects:
        for source in SOURCES:
            if source.collector not in subject.collectors:
                continue
            try:
                captures = subject.captures(source)
            except ArtifactError as error:
                yield subject.label, f"{source.collector}: {text(error)}"
                continue
            for problem in captures.problems:
                yield subject.label, f"{source.collector}: not read: {text(problem)}"
            for trial in captures.captured:
                for process in trial.processes:
                    rank = f", rank {process.rank}" if process.summary.get("world_size", 1) > 1 else ""
                    for told in _of_manifest(source.collector, process.summary):
                        yield subject.label, f"{source.collector}{rank}: {told}"


def _of_manifest(collector: str, manifest: Mapping[str, Any]) -> Iterator[str]:
    opaque = manifest.get("opaque_names") or ()
    # What numerics and memory read of a process does not stand in any layer.
    if opaque and collector not in (NUMERICS.collector, MEMORY.collector):
        yield f"calls inside of compiled code were not seen: {_named(opaque)}"
    if collector == TENSORS.collector:
        if manifest.get("compiled_observed"):
            yield (
                "code of torch.compile was compiled together with what observes it; without it, it may be fused "
                "otherwise, and have other last bits (Design, Observer effect: whether it printed the same)"
            )
        for layer, why in dict.fromkeys((each["layer"], each["reason"]) for each in manifest.get("not_seen") or ()):
            yield f"not seen inside of compiled code: {text(layer)}: {text(why)}"
        if manifest.get("tensors_left_out"):
            yield f"values of {counted(manifest['tensors_left_out'], 'observation')} were left out"
        for why, count in (manifest.get("tensors_passed_over") or {}).items():
            yield f"{counted(count, 'tensor')} passed over: {text(why)}"
    if collector == MEMORY.collector:
        for memory, state in (manifest.get("history") or {}).items():
            if state != "recorded":
                yield (
                    f"{text(memory)}: {text(state)}; which code allocated is not known, since the program did not have "
                    "its allocations recorded"
                )
    if manifest.get("lines_dropped"):
        yield f"there was no room for {counted(manifest['lines_dropped'], 'line')}"
    if manifest.get("status") not in ("complete", None):
        yield f"the process did not end so that it could be told ({text(manifest['status'])}); what came last may lack"
    if not is_in_order(str(manifest.get("ended_by") or "exit")):
        yield f"the process ended by {text(manifest['ended_by'])}, in step {manifest['steps_seen']}"
    if manifest.get("hook_errors"):
        yield f"{counted(manifest['hook_errors'], 'error')} in hooks, such as {text(manifest.get('first_hook_error'))}"
    if manifest.get("write_error"):
        yield f"writing failed: {text(manifest['write_error'])}"
    for pattern in manifest.get("unmatched_scope") or ():
        yield f"no module is meant by the scope {text(pattern)}"
    for warning in manifest.get("warnings") or ():
        yield text(warning)


def _of_comparisons(pairs: Sequence[OfPair]) -> Iterator[tuple[str, str]]:
    for each in pairs:
        label = " and ".join(subject.label for subject in each.pair)
        if each.comparison is None:
            yield label, f"tensors could not be compared: {text(each.error)}"
            continue
        for compared in each.comparison.pairs:
            for state, reason, side, count in compared.reasons:
                if state != "mismatched":
                    where = f" in the {side}" if side else ""
                    told = f": {text(reason)}" if reason else ""
                    yield label, f"{counted(count, 'observation')} {state}{where}{told}"
            of_manifests = {f"{side}, {note}" for side, note in _told_of_manifests(compared)}
            for note in compared.notes:
                if note not in of_manifests:
                    yield label, text(note)
        for side, names in (("baseline", each.comparison.only_baseline), ("candidate", each.comparison.only_candidate)):
            if names:
                yield label, f"only in the {side}: {_named(names)}"


def _told_of_manifests(compared: Compared) -> Iterator[tuple[str, str]]:
    """What a comparison says of how its processes ended: that is told of each run by itself."""
    for side, bundle in (("baseline", compared.baseline), ("candidate", compared.candidate)):
        for note in bundle.unfinished:
            yield side, f"{bundle.label}: {note}"


def _named(names: Sequence[str]) -> str:
    shown = ", ".join(text(name) for name in names[:_MOST_NAMES])
    return shown if len(names) <= _MOST_NAMES else f"{shown} and {len(names) - _MOST_NAMES} more"
