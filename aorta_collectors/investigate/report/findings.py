"""A report as a document, second half: evidence, numbers, what a person added, inference, gaps and reproduction."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from aorta_collectors.investigate.evidence import EVIDENCE, Evidence
from aorta_collectors.investigate.journal import JOURNAL
from aorta_collectors.investigate.report import own
from aorta_collectors.investigate.report.conclusion import Conclusion
from aorta_collectors.investigate.report.document import (
    Block,
    Code,
    Document,
    Heading,
    Inline,
    Item,
    Items,
    Line,
    Link,
    Section,
    Strong,
    Table,
    Verbatim,
    items,
    joined,
    paragraph,
)
from aorta_collectors.investigate.report.numbers import OfMetric
from aorta_collectors.investigate.report.reading import Report
from aorta_collectors.investigate.report.sections import first_half, lead
from aorta_collectors.investigate.statistics import CONFIDENCE, LEAST, Sample

# Lines of a file that are shown: of the first of its kind, and of the others.
_FIRST_LINES, _OTHER_LINES = 80, 12
_MOST_METRICS = 24
_SHORT = 12


def document_of(report: Report) -> Document:
    """The whole report."""
    numbered = {path: f"A{number}" for number, path in enumerate(report.cited, 1)}
    sections = [
        *first_half(report),
        Section("Tool Evidence", tuple(_evidence(report))),
        Section("Supplemental Analysis", tuple(_supplemental(report))),
        Section("Inference", tuple(_inference(report, numbered))),
        Section("Tool Gaps", tuple(_gaps(report, numbered))),
        Section("Reproduction Status", tuple(_reproduction(report))),
        Section("Artifacts", tuple(_artifacts(report, numbered))),
    ]
    return Document(report.investigation.metadata["question"], tuple(lead(report)), tuple(sections))


def _evidence(report: Report) -> Iterator[Block]:
    root = report.investigation.root
    if not report.evidence:
        yield paragraph("None: no run has left anything that a view of this package shows.")
    else:
        yield paragraph("Verbatim, as aorta-collectors prints it. Each file begins with the command that prints it.")
    kinds: set[tuple[str, ...]] = set()
    for each in report.evidence:
        kind = each.view.words[: 2 if each.view.words[0] in ("tensors", "memory") else 1]
        most = _OTHER_LINES if kind in kinds else _FIRST_LINES
        kinds.add(kind)
        yield Heading((Link(root / EVIDENCE / each.name, each.name),))
        yield Verbatim(_head(each, most))
        lines = each.text.count("\n")
        if lines > most:
            yield paragraph(f"{lines - most} more lines in ", Link(root / EVIDENCE / each.name), ".")
    yield from _numbers(report)


def _head(evidence: Evidence, most: int) -> str:
    return "".join(itertools.islice(evidence.text.splitlines(keepends=True), most))


def _numbers(report: Report) -> Iterator[Block]:
    if not report.metrics:
        return
    yield Heading(("Numbers of the runs",))
    yield paragraph(
        "From run.json, of runs that completed and are no warm-up. Medians, with exact intervals of order statistics "
        f"that cover the median with at least {CONFIDENCE:.0%}; these take {LEAST} values, and of fewer the values are "
        "listed. cpu_s and max_rss_bytes include aorta's own. Differences are the candidate less the baseline, pair by "
        "pair.",
    )
    is_paired = any(each.paired is not None for each in report.metrics)
    headings = ("number", "tool", *report.variants, *(("differences",) if is_paired else ()))
    rows = [_metric(each, report.variants, is_paired) for each in report.metrics[:_MOST_METRICS]]
    yield Table(headings, tuple(rows))
    if len(report.metrics) > _MOST_METRICS:
        yield paragraph(f"{len(report.metrics) - _MOST_METRICS} more: investigate report --json.")


def _metric(of: OfMetric, variants: Sequence[str], is_paired: bool) -> tuple[Line, ...]:
    samples = [of.samples.get(variant, Sample(())).describe(of.write) for variant in variants]
    cells: list[Line] = [(Code(of.name),), ("with" if of.tool else "without",), *((text,) for text in samples)]
    if is_paired:
        cells.append(("-",) if of.paired is None else (of.paired.differences.describe(of.write),))
    return tuple(cells)


def _supplemental(report: Report) -> Iterator[Block]:
    folder = report.investigation.root / own.SUPPLEMENTAL
    if not report.supplemental:
        yield paragraph("None. Files that are put into ", Code(str(folder)), " are shown here.")
        return
    yield paragraph("Put there by a person, and not made by this package.")
    for each in report.supplemental:
        yield Heading((Link(each.path, each.path.relative_to(folder).as_posix()),))
        yield paragraph(f"{each.size} bytes, sha256 ", Code(each.sha256))
        if each.text is None:
            yield paragraph("No text, or too long to be shown.")
        else:
            lines = each.text.splitlines(keepends=True)
            yield Verbatim("".join(lines[:_FIRST_LINES]))
            if len(lines) > _FIRST_LINES:
                yield paragraph(f"{len(lines) - _FIRST_LINES} more lines.")


def _inference(report: Report, numbered: dict[Path, str]) -> Iterator[Block]:
    yield paragraph(
        "What follows is concluded, and not printed by a tool. Where something begins, or with what it goes together, "
        "is no demonstrated cause. A1, A2, ... are listed with their digests under Artifacts."
    )
    yield Heading(("Automatic",))
    if report.conclusions:
        yield Items(tuple(_conclusion(each, report, numbered) for each in report.conclusions))
    else:
        yield paragraph("None.")
    yield Heading(("A person's",))
    if report.statements:
        yield paragraph("From ", Link(report.investigation.root / own.INFERENCE), ".")
        yield Items(tuple(_statement(each, numbered) for each in report.statements))
    else:
        yield paragraph(
            "None. What is written to ", Code(str(report.investigation.root / own.INFERENCE)), " stands here."
        )


def _conclusion(of: Conclusion, report: Report, numbered: dict[Path, str]) -> Item:
    root = report.investigation.root
    paths = [*(root / EVIDENCE / name for name in of.evidence), *of.artifacts]
    return Item(
        (of.text,), ((Strong("Standing: "), f"{of.standing.value}."), ("Stands on: ", *_links(paths, numbered)))
    )


def _links(paths: Sequence[Path], numbered: dict[Path, str]) -> list[Inline]:
    return joined([Link(path, numbered[path]) for path in paths]) or ["nothing"]


def _statement(of: own.Statement, numbered: dict[Path, str]) -> Item:
    if not of.artifacts:
        return Item((of.text,), ((Strong("Not supported by an artifact."),),))
    return Item((of.text,), (("Stands on: ", *_links(of.artifacts, numbered)),))


def _gaps(report: Report, numbered: dict[Path, str]) -> Iterator[Block]:
    every = {subject.label for subject in report.subjects if subject.run is not None}
    lines = [(f"{each.text} ({_some(each.of, every)})." if each.of else f"{each.text}.",) for each in report.gaps]
    if not report.observer.is_measured:
        lines.append(("The effect of the tool itself was not measured.",))
    yield items(*lines) if lines else paragraph("None is known.")
    if report.own_gaps:
        yield Heading(("A person's",))
        yield Items(tuple(_statement(each, numbered) for each in report.own_gaps))


def _some(labels: Sequence[str], every: Collection[str]) -> str:
    """Some labels; all that there are need no list."""
    if len(labels) > 1 and set(labels) == every:
        return "in all runs with the tool"
    shown = ", ".join(labels[:_SHORT])
    return shown if len(labels) <= _SHORT else f"{shown} and {len(labels) - _SHORT} more"


def _reproduction(report: Report) -> Iterator[Block]:
    yield items(*((sentence,) for sentence in report.reproduction))
    again = Code(f"aorta-collectors investigate verify {report.investigation.root}")
    yield paragraph("Whether everything is still as it was recorded: ", again)


def _artifacts(report: Report, numbered: dict[Path, str]) -> Iterator[Block]:
    journal = report.investigation.root / JOURNAL
    if report.journal:
        yield paragraph(
            Link(journal, JOURNAL),
            f" holds the digests of metadata.json and of each run.json, in a chain of {len(report.journal)} lines. "
            "Whoever keeps the digest of the last one elsewhere can tell whether any of them was changed: ",
            Code(report.journal[-1].own),
        )
    if not report.cited:
        yield paragraph("None is cited.")
        return
    rows = tuple(((numbered[path],), (Link(path),), (Code(digest),)) for path, digest in report.cited.items())
    yield Table(("", "path", "sha256"), rows)
