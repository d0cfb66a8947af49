"""What one process of a trial left of its tensors: a manifest, observations, and values as far as they were kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aorta_collectors.analysis.bundles.lines import LinesOf
from aorta_collectors.analysis.bundles.observation import Observation, observation_of
from aorta_collectors.analysis.bundles.values import ValueFiles
from aorta_collectors.analysis.captures import TENSORS, Captures, Process, Trial, trial_place
from aorta_collectors.analysis.compare_pairs import Member, paired
from aorta_collectors.analysis.search import captures_below
from aorta_collectors.artifacts.process import is_in_order

if TYPE_CHECKING:
    from typing import TypeVar

    from torch import Tensor

    P = TypeVar("P", bound="ProcessFiles")


@dataclass(frozen=True)
class ProcessFiles:
    """One process of one trial, and where its files lie.

    Attributes:
        trial: Of the captures that it was found in.
    """

    trial: Trial
    process: Process

    @property
    def path(self) -> Path:
        """The directory."""
        return self.trial.artifacts

    @property
    def rank(self) -> int:
        return self.process.rank

    @property
    def stem(self) -> str:
        """Of its files' names, such as rank0."""
        return self.process.stem

    @property
    def manifest(self) -> Mapping[str, Any]:
        """summary_<stem>.json: what process it was, with which options, in which environment, from which seeds."""
        return self.process.summary

    @property
    def is_empty(self) -> bool:
        """Whether the process has left no line, as a helper of the program leaves none."""
        return not any(self.process.sizes.values())

    @property
    def unfinished(self) -> list[str]:
        """A sentence where the process did not come to its end by itself."""
        if self.manifest["status"] == "running":
            return ["the process was killed, or still runs: the last of what it saw may be missing"]
        ended_by = str(self.manifest["ended_by"] or "exit")
        if is_in_order(ended_by):
            return []
        return [f"the program ended with {ended_by}, in step {self.manifest['steps_seen']}"]

    @property
    def label(self) -> str:
        """For people, such as "none-none, trial 0, rank 1"."""
        parts = trial_place(*self.trial.key), f"rank {self.rank}", "" if self.stem == f"rank{self.rank}" else self.stem
        return ", ".join(filter(None, parts))

    def to_json(self) -> dict[str, Any]:
        return {
            "cell": self.trial.cell,
            "trial": self.trial.trial,
            "rank": self.rank,
            "process": self.stem,
            "artifacts": str(self.path),
        }


@dataclass(frozen=True)
class Bundle(ProcessFiles):
    """What one process left of its tensors."""

    @property
    def lines(self) -> LinesOf:
        return LinesOf(self.path, self.process, "tensors", "tensors.observation")

    def observations(self) -> Iterator[Observation]:
        """In the order in which they were made. Raises ArtifactError for a line that is none."""
        return map(observation_of, self.lines)

    def values(self, observation: Observation) -> Tensor:
        """The values of one observation. Raises ArtifactError where they are not kept, or cannot be read."""
        with ValueFiles(self.path) as files:
            return files.read(observation)


def bundles_in(captures: Captures) -> list[Bundle]:
    """Of what was found for TENSORS, in its order."""
    return [Bundle(trial, process) for trial in captures.trials for process in trial.processes]


def bundles_of(path: Path) -> list[Bundle]:
    """Bundles of tensors below a run directory, a cell's or a trial's; in a directory; or that of one file of lines.

    Raises:
        ArtifactError: There are none, or they cannot be read.
    """
    return bundles_in(captures_below(path, TENSORS))


def pairs_of(
    baseline: Sequence[P], candidate: Sequence[P]
) -> tuple[list[tuple[P, P]], tuple[str, ...], tuple[str, ...]]:
    """Processes of two sides, paired by cell, trial, attempt and rank, as far as both sides have several of these.

    Several processes of one rank are paired in the order in which they began. Those that have left nothing are passed
    over, where their rank has another.

    Returns:
        The pairs, and the labels of what only the baseline and only the candidate have.
    """
    baseline, candidate = speaking(baseline), speaking(candidate)
    sides = [{(each.path.resolve(), each.stem): each for each in side} for side in (baseline, candidate)]

    def found(side: int, member: Member) -> P:
        return sides[side][member.trial.artifacts.resolve(), member.process.stem]

    pairing = paired(_captures(baseline), _captures(candidate))
    pairs = [(found(0, pair.a), found(1, pair.b)) for pair in pairing.pairs]
    alone = [
        tuple(each.label for each in side if all(each is not pair[index] for pair in pairs))
        for index, side in enumerate((baseline, candidate))
    ]
    return pairs, alone[0], alone[1]


def speaking(side: Sequence[P]) -> list[P]:
    """By trial, attempt and rank, and of each rank in the order in which they began; see `pairs_of`."""
    trials = {path: number for number, path in enumerate(dict.fromkeys(each.path for each in side))}
    heard = {(each.path, each.rank) for each in side if not each.is_empty}

    def began(each: P) -> tuple[int, int, int, str, int]:
        of = each.manifest
        return trials[each.path], each.process.line.restart, each.rank, of["started_at"], of["pid"]

    return [each for each in sorted(side, key=began) if not each.is_empty or (each.path, each.rank) not in heard]


def _captures(side: Iterable[ProcessFiles]) -> Captures:
    """The trials of some processes, with these alone."""
    trials: dict[Path, Trial] = {}
    for each in side:
        known = trials.get(each.path, replace(each.trial, processes=()))
        trials[each.path] = replace(known, processes=(*known.processes, each.process))
    return Captures(Path(), tuple(trials.values()))
