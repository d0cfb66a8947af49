"""Finding what was captured below a path: the trials of a run directory, one trial, what NANLOG_DIR, NUMERICS_DIR and
the like named, or one process's file of lines.

Nothing is verified here; `aorta-collectors verify` does that. What cannot be read is a problem that is told, and the
rest is read all the same. No symbolic link below the path is followed.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from aorta_collectors.analysis.captures import LAYER_NUMERICS, NONE, SOURCES, Captures, Process, Source, Trial
from aorta_collectors.analysis.summaries import read_summaries
from aorta_collectors.errors import ArtifactError
from aorta_collectors.evidence.directory import Anchor, DirectoryMissing
from aorta_collectors.evidence.ledger import LEDGER, read_ledger
from aorta_collectors.evidence.receipt import Receipt, read_receipt, trial_coordinates
from aorta_collectors.evidence.tree import Folder, Tree
from aorta_collectors.layer_numerics.order import Alignment
from aorta_collectors.strict_json import check_extent

_RECEIPT = "receipt_{}_"
_MOST_PROBLEMS = 1000


def captures_below(path: Path, source: Source = LAYER_NUMERICS) -> Captures:
    """Find the trials below a run directory, a cell's, or a trial's; or what was captured without a sweep.

    Args:
        path: A directory, a trial's record (trial_d0_m0_t0.json), or one process's file of lines (layers_rank0.jsonl).
        source: The collector whose processes are wanted.

    Raises:
        ArtifactError: It cannot be read, or nothing was captured there.
    """
    if path.is_file():
        if source.stem_of(path.name) is not None:
            return _of_process(path, source)
        if trial_coordinates(path.name) is None:
            raise ArtifactError(
                f"{path} is no trial's record (trial_d<D>_m<M>_t<T>.json); name that, a run directory, or what "
                f"{source.variable} named"
            )
        return _one(path.parent, path.stem, source)
    if path.name.startswith("trial_") and trial_coordinates(f"{path.name}.json") is not None:
        return _one(path.parent, path.name, source)
    of_trial = trial_coordinates(f"{path.parent.name}.json") is not None
    if of_trial and any(path.name == known.collector for known in SOURCES):
        return _one(path.parent.parent, path.parent.name, source)
    problems: list[str] = []
    bare = _processes(Anchor(path), path, source, problems)
    if bare:
        return Captures(path, (Trial(".", NONE, NONE, path, path, bare, source=source),), tuple(problems))
    tree = Tree(path)
    trials = list(_trials(tree, source, problems))
    problems += [f"{place} cannot be looked at: {why}" for place, why in tree.unreadable.items()]
    if not trials:
        why = f": {problems[0]}" if problems else ""
        raise ArtifactError(
            f"nothing was captured below {path}{why}; name a run directory, a trial's record or directory, or what "
            f"{source.variable} named"
        )
    return Captures(path, tuple(trials), tuple(problems[:_MOST_PROBLEMS]))


def _of_process(path: Path, source: Source) -> Captures:
    """What lies beside a file of lines, of its own process alone."""
    found = captures_below(path.parent, source)
    stem = source.stem_of(path.name)
    kept = (
        replace(trial, processes=tuple(each for each in trial.processes if each.stem == stem)) for trial in found.trials
    )
    trials = tuple(trial for trial in kept if trial.processes)
    if not trials:
        raise ArtifactError(f"{path} has no summary_{stem}.json beside it, which says what process it is of")
    return replace(found, path=path, trials=trials)


def _one(folder: Path, stem: str, source: Source) -> Captures:
    """The trial whose record is, or will be, `stem`.json in `folder`."""
    problems: list[str] = []
    tree = Tree(folder)
    for found in itertools.islice(tree.folders(), 1):
        trials = tuple(_of_folder(found, tree, source, problems, only=stem))
        if trials:
            return Captures(trials[0].file, trials, tuple(problems))
    raise ArtifactError(f"nothing was captured in {folder / stem}" + (f": {problems[0]}" if problems else ""))


def _trials(tree: Tree, source: Source, problems: list[str]) -> Iterator[Trial]:
    cells: dict[Path, list[str]] = {}  # of each sweep, in the recipe's order
    found: list[tuple[Path, Path, Trial]] = []
    for folder in tree.folders():
        if LEDGER in folder.kinds:
            try:
                cells[folder.path] = [entry.cell for entry in read_ledger(folder.directory)]
            except ArtifactError as error:
                cells[folder.path] = []
                problems.append(f"what this sweep asked for is not known: {error}")
        above = [sweep for sweep in cells if folder.path.is_relative_to(sweep)]
        run = max(above, key=lambda sweep: len(sweep.parts), default=tree.run_dir)
        found += [(run, folder.path, trial) for trial in _of_folder(folder, tree, source, problems)]
    if _has_twins(found):  # several runs without a ledger: told apart by the folder below the path that they lie in
        found = [(run if run in cells else _top(tree.run_dir, place), place, trial) for run, place, trial in found]
    if _has_twins(found):
        found = [(place, place, trial) for _, place, trial in found]
    of_run = [(run, trial) for run, _, trial in found]
    several = len({run for run, _ in of_run}) > 1

    def in_order(entry: tuple[Path, Trial]) -> tuple[str, int]:
        run, trial = entry
        listed = cells.get(run, [])
        return str(run), listed.index(trial.cell) if trial.cell in listed else len(listed)

    for run, trial in sorted(of_run, key=in_order):
        yield replace(trial, run=str(run.relative_to(tree.run_dir))) if several else trial


def _has_twins(found: Sequence[tuple[Path, Path, Trial]]) -> bool:
    """Whether two trials of one run have the same name."""
    return len({(run, trial.cell, trial.trial) for run, _, trial in found}) < len(found)


def _top(above: Path, path: Path) -> Path:
    return Path(above, *path.relative_to(above).parts[:1])


def _of_folder(
    folder: Folder, tree: Tree, source: Source, problems: list[str], only: str | None = None
) -> Iterator[Trial]:
    """The trials whose records, or artifacts, lie in a folder: one that runs has no record yet."""
    anchor = Anchor(tree.run_dir)
    stems = {name.removesuffix(".json") for name in folder.kinds if trial_coordinates(name) is not None}
    for stem in sorted(stems | set(folder.artifacts), key=_by_number):
        if only not in (None, stem):
            continue
        coordinates = trial_coordinates(f"{stem}.json") or stem
        record: Mapping[str, Any] = {}
        receipts: dict[str, Receipt] = {}
        try:
            if stem in stems:
                record = _record(folder, f"{stem}.json")
            for name in folder.kinds:
                if name.startswith(_RECEIPT.format(coordinates)):
                    refusal = folder.refusal(name)
                    receipt = None if refusal else read_receipt(folder.directory, name)
                    if refusal:
                        raise ArtifactError(refusal)
                    if receipt is not None:
                        receipts[receipt.collector] = receipt
        except ArtifactError as error:
            problems.append(f"{folder.path / stem}: {error}")
        ours = receipts.get(source.collector)
        artifacts = folder.path / stem / source.collector
        processes = _processes(anchor, artifacts, source, problems) if stem in folder.artifacts else ()
        if stem not in stems and not processes:
            continue  # what some program left in a folder of that name
        named = ours.cell if ours is not None and ours.cell else folder.path.resolve().parent.name
        file = folder.path / f"{stem}.json" if stem in stems else artifacts
        yield Trial(".", named, coordinates, artifacts, file, processes, record, receipts, source)


def _record(folder: Folder, name: str) -> Mapping[str, Any]:
    """The host's record. Its `env`, what the host found out about the machine, is large and nobody's question here."""
    refusal = folder.refusal(name)
    if refusal is not None:
        raise ArtifactError(refusal)
    content = folder.directory.read(name)
    try:
        check_extent(content)
        record = json.loads(content)  # the host writes NaN into its numbers
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"{name} is no record of a trial ({error})") from None
    if not isinstance(record, dict):
        raise ArtifactError(f"{name} is no record of a trial")
    record.pop("env", None)
    return record


def _processes(anchor: Anchor, directory: Path, source: Source, problems: list[str]) -> tuple[Process, ...]:
    """What lies in a directory; empty where nothing does."""
    try:
        with anchor.open(directory) as artifacts:
            summaries = read_summaries(artifacts, source.schema)
            sizes = artifacts.sizes()
    except DirectoryMissing:
        return ()
    except ArtifactError as error:
        problems.append(f"{directory}: {error}")
        return ()
    alignment = Alignment(summaries.values())
    processes = []
    for stem, summary in summaries.items():
        names = {kind: f"{kind}_{stem}.jsonl" for kind in source.lines if f"{kind}_{stem}.jsonl" in sizes}
        files = {kind: directory / name for kind, name in names.items()}
        bytes_of = {kind: sizes[name] for kind, name in names.items()}
        processes.append(Process(stem, summary, alignment.line(summary), files, bytes_of))
    return tuple(sorted(processes, key=lambda process: (process.line.restart, process.rank, process.stem)))


def _by_number(stem: str) -> tuple[int, ...]:
    return tuple(int(part[1:]) for part in stem.split("_")[1:] if part[1:].isdecimal())
