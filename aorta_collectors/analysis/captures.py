"""What has been captured: trials, the processes of each, and the files that these left."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from aorta_collectors.errors import ArtifactError
from aorta_collectors.evidence.receipt import Receipt
from aorta_collectors.layer_numerics.order import Line

_STEM = re.compile(r"rank\d+(_p\d+)?")


@dataclass(frozen=True)
class Source:
    """A collector, as far as finding what it left goes.

    Attributes:
        collector: Its name, which is that of the folder in a trial too.
        lines: Kinds of its files of lines, which are named <kind>_<stem>.jsonl.
        variable: The environment variable that names a directory where there is no sweep.
    """

    collector: str
    lines: tuple[str, ...]
    variable: str

    @property
    def schema(self) -> str:
        """Of a summary."""
        return f"{self.collector}.summary"

    def stem_of(self, name: str) -> str | None:
        """The stem of a file of lines by its name, such as rank0 of tensors_rank0.jsonl; None of any other file."""
        kind, _, stem = name.removesuffix(".jsonl").partition("_")
        return stem if kind in self.lines and _STEM.fullmatch(stem) and name.endswith(".jsonl") else None


LAYER_NUMERICS = Source("layer_numerics", ("layers",), "NANLOG_DIR")
NUMERICS = Source("numerics", ("spans", "stats", "steps", "escalations"), "NUMERICS_DIR")
TENSORS = Source("tensors", ("tensors",), "TENSORS_DIR")
MEMORY = Source("memory", ("memory", "growth"), "MEMORY_DIR")
SOURCES = (LAYER_NUMERICS, NUMERICS, TENSORS, MEMORY)
COLLECTOR = LAYER_NUMERICS.collector
#: The cell and the trial of what was captured without a sweep.
NONE = "-"


def trial_index(coordinates: str) -> str:
    """The N of d<D>_m<M>_t<N>, as people count trials."""
    return coordinates.rpartition("_t")[2]


def cell_place(run: str, cell: str) -> str:
    """The cell's name, after the sweep's where there are several."""
    return cell if run in (".", "") else f"{run}: {cell}"


def trial_place(run: str, cell: str, trial: str) -> str:
    """Such as "clip_gradients-none, trial 0"; empty where there is no sweep."""
    if trial == NONE:
        return ""
    return f"{cell_place(run, cell)}, trial {trial_index(trial)}"


@dataclass(frozen=True)
class Process:
    """What one process left.

    Attributes:
        stem: Of its files' names, such as rank0, or rank0_p71 beside another of rank 0.
        summary: summary_<stem>.json, which is to its schema.
        line: Where its records stand among those of the trial's other processes.
        files: Its files of lines, by kind, as far as they are there.
        sizes: Their bytes.
    """

    stem: str
    summary: Mapping[str, Any]
    line: Line
    files: Mapping[str, Path] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)

    @property
    def rank(self) -> int:
        return int(self.summary["rank"])

    @property
    def records(self) -> Path | None:
        """layers_<stem>.jsonl of layer_numerics; None where there is no such file."""
        return self.files.get("layers")

    @property
    def records_bytes(self) -> int:
        return self.sizes.get("layers", 0)


@dataclass(frozen=True)
class Trial:
    """One trial, and what its processes left.

    Attributes:
        run: The sweep's directory below the path that was asked for; "." where there is one sweep, or none.
        cell: The cell's name; "-" without a sweep.
        trial: Its coordinates, such as d0_m0_t3; "-" without a sweep.
        artifacts: Where the collector wrote.
        processes: In the order of rank and attempt; empty where it wrote nothing.
        record: The host's record of the trial without its `env`; empty before the trial has ended, and without a sweep.
        receipts: What verification said, by collector.
        file: The host's record; where there is none, `artifacts`.
        source: The collector whose processes these are.
    """

    run: str
    cell: str
    trial: str
    artifacts: Path
    file: Path
    processes: tuple[Process, ...] = ()
    record: Mapping[str, Any] = field(default_factory=dict)
    receipts: Mapping[str, Receipt] = field(default_factory=dict)
    source: Source = LAYER_NUMERICS

    @property
    def key(self) -> tuple[str, str, str]:
        return self.run, self.cell, self.trial

    @property
    def index(self) -> str:
        return trial_index(self.trial)

    @property
    def receipt(self) -> Receipt | None:
        return self.receipts.get(self.source.collector)

    @property
    def passed(self) -> bool | None:
        """What the host said of the trial; None before it has ended, and without a sweep."""
        result = self.record.get("result")
        passed = result.get("passed") if isinstance(result, Mapping) else None
        return passed if isinstance(passed, bool) else None

    @property
    def label(self) -> str:
        """Such as "clip_gradients-none, trial 0"; the directory where there is no sweep."""
        return trial_place(*self.key) or str(self.artifacts)


@dataclass(frozen=True)
class Captures:
    """All trials below a path.

    Attributes:
        problems: What could not be read, a sentence each.
    """

    path: Path
    trials: tuple[Trial, ...]
    problems: tuple[str, ...] = ()

    @property
    def captured(self) -> tuple[Trial, ...]:
        """Those in which the collector left something."""
        return tuple(trial for trial in self.trials if trial.processes)

    @property
    def records_bytes(self) -> int:
        return sum(process.records_bytes for trial in self.trials for process in trial.processes)

    def only(self, cells: Sequence[str] = (), trials: Sequence[str] = (), ranks: Sequence[int] = ()) -> Captures:
        """Those of some cells, of some trials (by index or coordinates), and of these the processes of some ranks.

        Raises:
            ArtifactError: A name or a number is not there; the error lists what is.
        """
        kept = self.trials
        for what, wanted, names in (
            ("cell", cells, lambda trial: (trial.cell,)),
            ("trial", trials, lambda trial: (trial.index, trial.trial)),
        ):
            there = dict.fromkeys(names(trial) for trial in kept)
            for name in wanted:
                if not any(name in of_trial for of_trial in there):
                    listed = ", ".join(of_trial[-1] for of_trial in there) or "none"
                    raise ArtifactError(f"{self.path} has no {what} {name!r}; there is: {listed}")
            if wanted:
                kept = tuple(trial for trial in kept if set(names(trial)) & set(wanted))
        if ranks:
            there_are = {process.rank for trial in kept for process in trial.processes}
            if missing := [rank for rank in ranks if rank not in there_are]:
                of_all = ", ".join(map(str, sorted(there_are))) or "none"
                raise ArtifactError(f"{self.path} has no rank {missing[0]}; there is: {of_all}")
            kept = tuple(
                replace(trial, processes=tuple(process for process in trial.processes if process.rank in ranks))
                for trial in kept
            )
        return replace(self, trials=kept)
