"""A report as a document, first half: the question, what it ran on, the design, the runs and their commands."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from aorta_collectors.analysis.captures import SOURCES, TENSORS, trial_place
from aorta_collectors.errors import ArtifactError
from aorta_collectors.evidence.directory import Anchor
from aorta_collectors.investigate.described import design_text, variant_text
from aorta_collectors.investigate.files import COMMAND, METADATA, Run
from aorta_collectors.investigate.report.document import (
    Block,
    Code,
    Heading,
    Line,
    Link,
    Paragraph,
    Section,
    Strong,
    Table,
    Verbatim,
    items,
    joined,
    paragraph,
)
from aorta_collectors.investigate.report.observer_blocks import observer_blocks
from aorta_collectors.investigate.report.reading import Report
from aorta_collectors.investigate.revisions import described
from aorta_collectors.report.memory_words import size
from aorta_collectors.report.wording import number, text

# Versions that numbers depend on most; the others are in metadata.json.
_PACKAGES = ("torch", "numpy", "triton", "transformers", "torchrec", "fbgemm-gpu", "amd-aorta", "aorta-collectors")
_OF_MANIFESTS = ("argv", "script_revision", "python", "torch", "devices", "cpu", "driver")
_MOST_COMMANDS = 24
_TIME = 19


def first_half(report: Report) -> list[Section]:
    """In the order of the report."""
    return [
        Section("Question", tuple(_question(report))),
        Section("Environment", tuple(_environment(report))),
        Section("Design", tuple(_design(report))),
        Section("Run Matrix", tuple(_matrix(report))),
        Section("Commands", tuple(_commands(report))),
    ]


def lead(report: Report) -> list[Block]:
    """Where this stands, before anything else."""
    metadata = report.investigation.metadata
    made = f"Made {report.made_at[:_TIME]} UTC by {metadata['engine']} in "
    found: list[Block] = [paragraph(made, Link(report.investigation.root), ".")]
    if metadata["mode"] != "fresh":
        found.append(
            paragraph(
                Strong("Existing artifacts."),
                " Nothing was run for this question. What is compared was there before, and nothing of it was copied.",
            )
        )
    left = len(report.not_begun)
    if left:
        found.append(paragraph(Strong("Not finished."), f" {left} of {len(metadata['schedule'])} runs are not begun."))
    return found


def _question(report: Report) -> Iterator[Block]:
    metadata = report.investigation.metadata
    yield paragraph(metadata["question"])
    yield paragraph(Strong("Criterion: "), metadata["criterion"])
    yield from (paragraph(Strong("Before this is read: "), caveat) for caveat in report.caveats)
    seen = tuple((each.text,) for each in report.conclusions)
    if report.unanswered:
        yield paragraph(Strong("Not answered. "), report.unanswered)
    if seen:
        yield paragraph(Strong("Seen: "), "as below; whether that meets the criterion is for a person to say.")
        yield items(*seen)


def _environment(report: Report) -> Iterator[Block]:
    metadata = report.investigation.metadata
    environment = metadata["environment"]
    if environment is None:
        yield paragraph("Not recorded." if metadata["mode"] == "fresh" else "As the artifacts themselves have it:")
        yield Table(("", "recorded"), tuple(_of_manifests(report)))
        return
    machine, torch, packages = environment["machine"], environment["torch"], environment["packages"]
    rows: list[tuple[str, Any]] = [
        ("first run started", metadata["started_at"]),
        ("machine", f"{machine['host']}, {machine['system']}, {machine['architecture']}"),
        ("processor", f"{machine['cpu']}, {machine['cpus']} usable, {size(machine['memory_bytes'])} of memory"),
        ("driver", ", ".join(f"{name} {version}" for name, version in machine.get("drivers", {}).items()) or "none"),
        ("Python", f"{environment['python']['version']} ({environment['python']['executable']})"),
        ("torch", _plain({name: value for name, value in torch.items() if name != "devices"})),
        ("devices", "; ".join(_plain(device) for device in torch.get("devices", ())) or "none"),
        ("packages", ", ".join(f"{name} {packages[name]}" for name in _PACKAGES if name in packages)),
        ("variables", " ".join(f"{name}={shlex.quote(value)}" for name, value in environment["variables"].items())),
        ("directory", metadata["cwd"]),
    ]
    yield Table(("", "recorded at the first start"), tuple(((name,), (str(value) or "none",)) for name, value in rows))
    yield Paragraph(("All packages are in ", Link(report.investigation.root / METADATA), "."))
    trees = [(tree, _plain(described(revision))) for tree, revision in metadata["revisions"].items()]
    if trees:
        yield Table(("git work tree", "revision"), tuple(((Code(tree),), (revision,)) for tree, revision in trees))
    files = metadata.get("files", {})
    if files:
        yield Table(("file", "as it was"), tuple(((Code(path),), (Code(digest),)) for path, digest in files.items()))
    for change in metadata.get("changes", ()):
        before = "" if change["before_run"] is None else f", before run {change['before_run']}"
        yield paragraph(Strong(f"Changed {change['at'][:_TIME]} UTC{before}, and went on (--allow-changes):"))
        yield items(*((line,) for line in change["what"]))


def _of_manifests(report: Report) -> Iterator[tuple[Line, ...]]:
    """What the first process of each artifact recorded of where it ran."""
    for subject in report.subjects:
        for source in SOURCES:
            trials = subject.captures(source).captured if source.collector in subject.collectors else ()
            if trials:
                found = trials[0].processes[0].summary.get("environment") or {}
                told = _plain({key: found[key] for key in _OF_MANIFESTS if found.get(key)})
                yield (f"{subject.label}, {source.collector}",), (told or "nothing",)


def _design(report: Report) -> Iterator[Block]:
    metadata = report.investigation.metadata
    collect = [
        Code(name + (f" ({', '.join(f'{key}={value}' for key, value in block.items())})" if block else ""))
        for name, block in metadata["collect"].items()
    ]
    lines: list[Line] = [("Kind of question: ", metadata["kind"], ".")]
    for variant in metadata["variants"]:
        if metadata["mode"] == "fresh":
            lines.append((f"{variant['name'].capitalize()}: ", Code(variant_text(variant))))
    for entry in metadata["existing"]:
        lines.append((f"{entry['variant'].capitalize()}: ", Link(Path(entry["path"]))))
    if collect:
        lines.append(("Collected: ", *joined(collect), "."))
    if metadata["points"]:
        lines.append(("Points that each run must have: ", *joined([Code(point) for point in metadata["points"]]), "."))
    if metadata["mode"] == "fresh":
        lines.append((f"Order and number, declared before the first run: {design_text(metadata)}.",))
    if (
        any(TENSORS.collector in subject.collectors for subject in report.subjects)
        or TENSORS.collector in metadata["collect"]
    ):
        lines.append((f"Tensors count as the same: {report.criterion.describe()}.",))
    if report.chosen:
        lines.append((report.chosen,))
    yield items(*lines)
    yield Heading(("Whether number and order support a claim",))
    yield items(*((sentence,) for sentence in report.supports))
    yield Heading(("Observer effect",))
    yield from observer_blocks(report.observer)


def _matrix(report: Report) -> Iterator[Block]:
    if report.investigation.metadata["mode"] != "fresh":
        yield paragraph("Nothing was run. These artifacts were there before:")
        existing = report.investigation.metadata["existing"]
        yield Table(
            ("variant", "path", "files"),
            tuple(((each["variant"],), (Code(each["path"]),), (str(len(each["sha256"])),)) for each in existing),
            frozenset({2}),
        )
        of_processes = ("variant", "process", "collector", "state", "ended by", "steps")
        yield Table(of_processes, tuple(_processes(report)), frozenset({5}))
        return
    headings = ("run", "seed", "tool", "state", "exit code", "duration", "verdict", "evidence", "finite", "started")
    yield Table(headings, tuple(_run_row(run) for run in report.runs), frozenset({1, 4, 5}))
    reasons = [
        ((Link(run.directory, run.directory.name), f": {run.state}: {run.record['reason']}"))
        for run in report.runs
        if run.record["reason"]
    ]
    if reasons:
        yield items(*reasons)
    for why in report.unreadable:
        yield paragraph(Strong("Unreadable: "), why)
    if report.not_begun:
        yield paragraph(f"Not begun: {', '.join(report.not_begun)}.")


def _processes(report: Report) -> Iterator[tuple[Line, ...]]:
    """How each process ended, as its manifests tell."""
    for subject in report.subjects:
        for source in SOURCES:
            for trial in subject.trials(source):
                for process in trial.processes:
                    of = process.summary
                    label = ", ".join(filter(None, (trial_place(*trial.key), process.stem)))
                    ended_by = of.get("ended_by") or "-"
                    yield (
                        (subject.variant,),
                        (text(label),),
                        (source.collector,),
                        (text(of.get("status", "-")),),
                        (text(ended_by),),
                        (str(of["steps_seen"]),),
                    )


def _run_row(run: Run) -> tuple[Line, ...]:
    record = run.record
    name = run.directory.name + (" (does not count: warm-up)" if record["warm_up"] else "")
    receipts = ", ".join(f"{item['collector']} {item['verdict']}" for item in record["receipts"])
    finite = {True: "yes", False: "no", None: "-"}[record["finite"]]
    return (
        (Link(run.directory, name),),
        _shown(record["seed"]),
        ("yes" if record["tool"] else "no",),
        (record["state"],),
        _shown(record["exit_code"]),
        _shown(None if record["duration_s"] is None else f"{number(record['duration_s'])} s"),
        _shown(record["verdict"]),
        (receipts or "-",),
        (finite,),
        (record["started_at"][:_TIME],),
    )


def _shown(value: Any) -> Line:
    return ("-",) if value is None else (str(value),)


def _commands(report: Report) -> Iterator[Block]:
    if not report.runs:
        yield paragraph("None was run.")
        return
    yield paragraph(
        "Each run has its commands in command.txt. To run one again, give another --output: the evidence of the run "
        "lies in the one that stands there."
    )
    chosen = report.runs
    if len(chosen) > _MOST_COMMANDS:
        kinds = {(run.record["variant"], run.record["tool"]): run for run in reversed(chosen)}
        chosen = tuple(sorted(kinds.values(), key=lambda run: run.number))
        yield paragraph(f"Of {len(report.runs)} runs, the first of each variant; the others differ in their paths.")
    for run in chosen:
        yield Heading((Link(run.directory / COMMAND),))
        yield Verbatim(_content(report, run), wraps=True)


def _content(report: Report, run: Run) -> str:
    try:
        with Anchor(report.investigation.root).open(run.directory) as directory:
            return directory.read(COMMAND).decode("utf-8", "replace")
    except ArtifactError as error:
        return f"{text(error)}\n{shlex.join(run.record['command'])}"


def _plain(values: Mapping[str, Any]) -> str:
    """Such as "version 2.13.0, cuda none"."""
    return ", ".join(f"{name} {_value(value)}" for name, value in values.items())


def _value(value: Any) -> str:
    if value is None:
        return "none"
    return value if isinstance(value, str) else json.dumps(value)
