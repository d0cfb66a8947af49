"""All that a report says, read from an investigation and worked out anew: nothing of an earlier report goes into it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aorta_collectors.analysis.bundles.criterion import Criterion
from aorta_collectors.errors import ArtifactError
from aorta_collectors.investigate.evidence import EVIDENCE, Evidence, Printer, collect_evidence
from aorta_collectors.investigate.files import Investigation, Run
from aorta_collectors.investigate.journal import Line, read_journal
from aorta_collectors.investigate.report import own, status
from aorta_collectors.investigate.report.caveats import changes_between, chosen_after, gaps_of_caveats, weakened
from aorta_collectors.investigate.report.conclusion import Conclusion
from aorta_collectors.investigate.report.failures import conclude_ends, conclude_failures
from aorta_collectors.investigate.report.finite import Finite, conclude_finite, finite_of
from aorta_collectors.investigate.report.gaps import Gap, gaps_of
from aorta_collectors.investigate.report.growth import OfMemory, conclude_memory, memory_of
from aorta_collectors.investigate.report.numbers import OfMetric, conclude_durations, metrics_of
from aorta_collectors.investigate.report.observer import ObserverEffect, conclude_observer, observer_effect
from aorta_collectors.investigate.report.ranks import OfRanks, compare_all_ranks, conclude_ranks
from aorta_collectors.investigate.report.subjects import Subject, subjects_of
from aorta_collectors.investigate.report.unanswered import unanswered
from aorta_collectors.investigate.report.values import OfPair, compare_pairs, compare_repetitions, conclude_values
from aorta_collectors.investigate.revisions import fingerprint


@dataclass(frozen=True)
class Report:
    """
    Attributes:
        made_at: UTC.
        runs: All attempts at all runs.
        subjects: What evidence there is of.
        unreadable: Directories below runs/ whose run.json cannot be read, and why.
        caveats: What has to be known before the conclusions are read.
        chosen: That the criterion is not the declared one, which is one of the caveats; empty where it is.
        unanswered: Why no conclusion is about the question; empty where one is.
        supports: What number and order of the runs allow to say.
        cited: sha256 by absolute path, of every artifact that a conclusion or a statement stands on.
        journal: Its lines; none where it cannot be read.
    """

    investigation: Investigation
    criterion: Criterion
    made_at: str
    runs: tuple[Run, ...]
    unreadable: tuple[str, ...]
    subjects: tuple[Subject, ...]
    evidence: tuple[Evidence, ...]
    pairs: tuple[OfPair, ...]
    again: tuple[OfPair, ...]
    ranks: tuple[OfRanks, ...]
    memory: tuple[OfMemory, ...]
    finite: tuple[Finite, ...]
    metrics: tuple[OfMetric, ...]
    observer: ObserverEffect
    caveats: tuple[str, ...]
    chosen: str
    conclusions: tuple[Conclusion, ...]
    unanswered: str
    statements: tuple[own.Statement, ...]
    supplemental: tuple[own.Supplemental, ...]
    gaps: tuple[Gap, ...]
    own_gaps: tuple[own.Statement, ...]
    supports: tuple[str, ...]
    reproduction: tuple[str, ...]
    cited: dict[Path, str]
    journal: tuple[Line, ...]

    @property
    def latest(self) -> list[Run]:
        """The last attempt at each run."""
        return list({run.number: run for run in self.runs}.values())

    @property
    def not_begun(self) -> list[str]:
        """Names of the runs of the schedule of which there is nothing."""
        begun = {run.number for run in self.runs}
        return [entry["name"] for entry in self.investigation.metadata["schedule"] if entry["number"] not in begun]

    @property
    def variants(self) -> list[str]:
        return [variant["name"] for variant in self.investigation.metadata["variants"]]

    def to_json(self) -> dict[str, Any]:
        return {
            "root": str(self.investigation.root),
            "made_at": self.made_at,
            "metadata": dict(self.investigation.metadata),
            "criterion": self.criterion.to_json(),
            "runs": [{"directory": str(run.directory), **run.record} for run in self.runs],
            "unreadable": list(self.unreadable),
            "evidence": [
                {"file": each.name, "command": each.view.command, "exit_code": each.code} for each in self.evidence
            ],
            "tensors": [each.to_json() for each in self.pairs],
            "repetitions_compared": [each.to_json() for each in self.again],
            "ranks": [
                {"of": each.subject.label, "comparisons": [found.to_json(20) for found in each.comparisons]}
                for each in self.ranks
            ],
            "memory": [each.to_json() for each in self.memory],
            "finite": [each.to_json() for each in self.finite],
            "numbers": [each.to_json() for each in self.metrics],
            "observer_effect": self.observer.to_json(),
            "caveats": list(self.caveats),
            "unanswered": self.unanswered,
            "conclusions": [each.to_json() for each in self.conclusions],
            "statements": [each.to_json() for each in self.statements],
            "supplemental": [each.to_json() for each in self.supplemental],
            "gaps": [each.to_json() for each in self.gaps],
            "own_gaps": [each.to_json() for each in self.own_gaps],
            "supports": list(self.supports),
            "reproduction": list(self.reproduction),
            "journal": {"lines": len(self.journal), "last_sha256": self.journal[-1].own if self.journal else None},
            "artifacts": {str(path): digest for path, digest in self.cited.items()},
        }


def read_report(
    investigation: Investigation,
    criterion: Criterion,
    made_at: str,
    printer: Printer,
    progress: Callable[[float, float], None],
) -> Report:
    """Work out everything.

    Args:
        criterion: When tensors count as the same.
        made_at: UTC.
        printer: Runs this package's own views.

    Raises:
        ArtifactError: A file of the investigation, or one that a person added, cannot be read.
    """
    metadata, root = investigation.metadata, investigation.root
    runs, unreadable = readable_runs(investigation)
    latest = list({run.number: run for run in runs}.values())
    subjects = subjects_of(investigation, latest)
    variants = [variant["name"] for variant in metadata["variants"]]
    evidence = collect_evidence(subjects, criterion, printer, progress)
    pairs, again = compare_pairs(subjects, criterion), compare_repetitions(subjects)
    ranks, memory = compare_all_ranks(subjects, criterion), memory_of(subjects)
    finite = finite_of(subjects)
    compiled = list(dict.fromkeys(subject.variant for subject in subjects if subject.runs_compiled))
    metrics, observer = metrics_of(latest, variants), observer_effect(latest, variants, compiled, kind=metadata["kind"])
    answers = {
        "values": [*conclude_values(pairs, criterion, evidence), *conclude_ranks(ranks, evidence)],
        "memory": conclude_memory(memory, evidence),
        "finite": _finite(metadata["kind"], finite, variants, evidence),
        "timing": _durations(metadata, metrics, latest, observer),
    }
    concluded = [
        *conclude_failures(latest, variants),
        *conclude_ends(subjects),
        *(conclusion for of_kind in answers.values() for conclusion in of_kind),
        *conclude_observer(observer),
    ]
    changes, chosen = changes_between(metadata, latest), chosen_after(metadata, criterion, subjects)
    conclusions = list(weakened(concluded, changes, root))
    not_begun = len({entry["number"] for entry in metadata["schedule"]} - {run.number for run in runs})
    why = unanswered(metadata, subjects, not_begun, answers[metadata["kind"]])
    gaps = [
        *gaps_of_caveats(changes, [each for each in (chosen, why) if each]),
        *gaps_of(metadata["kind"], latest, subjects, [*pairs, *again]),
    ]
    statements, own_gaps = own.statements_in(root, own.INFERENCE), own.statements_in(root, own.GAPS)
    supplemental = own.supplemental_in(root)
    return Report(
        investigation,
        criterion,
        made_at,
        tuple(runs),
        tuple(unreadable),
        tuple(subjects),
        tuple(evidence),
        tuple(pairs),
        tuple(again),
        tuple(ranks),
        tuple(memory),
        tuple(finite),
        tuple(metrics),
        observer,
        tuple(each for each in (*(change.sentence for change in changes), chosen) if each),
        chosen,
        tuple(conclusions),
        why,
        tuple(statements),
        tuple(supplemental),
        tuple(gaps),
        tuple(own_gaps),
        tuple(status.supports(metadata, latest)),
        tuple(status.reproduction(investigation, runs, pairs, again, finite)),
        _cited(root, conclusions, [*statements, *own_gaps], evidence),
        _journal(root),
    )


def _journal(root: Path) -> tuple[Line, ...]:
    try:
        return tuple(read_journal(root))
    except ArtifactError:
        return ()  # `verify` says so


def readable_runs(investigation: Investigation) -> tuple[list[Run], list[str]]:
    """All attempts in the schedule's order, and of those that cannot be read, why."""
    found, unreadable = [], []
    for directory in investigation.run_directories():
        if directory.name.startswith("."):  # a run that is being made
            continue
        try:
            found.append(investigation.read_run(directory))
        except ArtifactError as error:
            unreadable.append(str(error))
    return sorted(found, key=lambda run: (run.number, run.attempt)), unreadable


def _finite(
    kind: str, finite: Sequence[Finite], variants: Sequence[str], evidence: Sequence[Evidence]
) -> list[Conclusion]:
    """Of another kind of question, only what is not finite is told: then that is what to look at."""
    found = conclude_finite(finite, variants, evidence)
    return found if kind == "finite" or any(each.is_finite is False for each in finite) else []


def _durations(
    metadata: Mapping[str, Any], metrics: Sequence[OfMetric], latest: Sequence[Run], observer: ObserverEffect
) -> list[Conclusion]:
    if metadata["kind"] != "timing" or metadata["mode"] != "fresh":
        return []
    controlled = status.is_controlled(metadata, latest)
    return list(conclude_durations(metrics, latest, is_controlled=controlled, is_disturbed=bool(observer.differs)))


def _cited(
    root: Path, conclusions: Sequence[Conclusion], statements: Sequence[own.Statement], evidence: Sequence[Evidence]
) -> dict[Path, str]:
    texts = {each.name: each.text for each in evidence}
    found: dict[Path, str] = {}
    for conclusion in conclusions:
        for name in conclusion.evidence:
            found[root / EVIDENCE / name] = hashlib.sha256(texts[name].encode()).hexdigest()
        for path in conclusion.artifacts:
            found.setdefault(path, digest_of(path))
    for statement in statements:
        for path in statement.artifacts:
            found.setdefault(path, digest_of(path))
    return found


def digest_of(path: Path) -> str:
    """sha256 in hex, or size and time of what is too large for one, or why there is none."""
    return fingerprint(path).removeprefix("sha256:")
