"""What is compared with what: processes of two sides, paired by what the sides have in common."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from aorta_collectors.analysis.captures import Captures, Process, Trial, trial_place


@dataclass(frozen=True)
class Member:
    """One process on one side.

    Attributes:
        trial: Of the captures that `Pairing.captures` are, so that its key is that of the views.
        name: For people: cell, trial and rank as far as a side has several, such as "small_lr-none, rank 1".
    """

    trial: Trial
    process: Process
    name: str


@dataclass(frozen=True)
class Pair:
    """Two processes that are compared.

    Attributes:
        number: From 0, in the order of the first side.
    """

    number: int
    a: Member
    b: Member


@dataclass(frozen=True)
class Pairing:
    """Attributes:
    captures: Those of both sides, each trial once, with a `run` of its own, so that keys of two paths never meet.
    only_a, only_b: Names of what has no counterpart.
    """

    captures: Captures
    pairs: tuple[Pair, ...]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]


def paired(a: Captures, b: Captures) -> Pairing:
    """Pair trials, then their processes.

    Trials are paired by run, cell and coordinates, without the parts of which each side has only one: one cell is
    compared with another whatever their names. Processes are paired by attempt and rank; where each of the two trials
    has one only, those.
    """
    merged = _merged((*a.captured, *b.captured))
    by_place = {trial.artifacts.resolve(): trial for trial in merged}
    parts = [index for index in range(3) if any(_several(side, index) for side in (a, b))]
    of_a, of_b = ({tuple(trial.key[index] for index in parts): trial for trial in side.captured} for side in (a, b))
    names_ranks = any(len(trial.processes) > 1 for side in (a, b) for trial in side.captured)

    def members(trial: Trial) -> dict[tuple[int, ...], Member]:
        known = by_place[trial.artifacts.resolve()]
        seen: Counter[tuple[int, int]] = Counter()
        found: dict[tuple[int, ...], Member] = {}
        for process in trial.processes:
            key = (process.line.restart, process.rank)
            found[(*key, seen[key])] = Member(known, process, _name(trial, process, names_ranks))
            seen[key] += 1
        return found

    pairs: list[Pair] = []
    only: tuple[list[str], list[str]] = ([], [])
    for key in dict.fromkeys((*of_a, *of_b)):
        left = members(of_a[key]) if key in of_a else {}
        right = members(of_b[key]) if key in of_b else {}
        if len(left) == len(right) == 1:
            right = dict(zip(left, right.values(), strict=True))
        for place in dict.fromkeys((*left, *right)):
            if place in left and place in right:
                pairs.append(Pair(len(pairs), left[place], right[place]))
            elif place in left:
                only[0].append(left[place].name)
            else:
                only[1].append(right[place].name)
    for side, names in zip((a, b), only, strict=True):
        names += [trial.label for trial in side.trials if not trial.processes]
    return Pairing(Captures(a.path, merged), tuple(pairs), tuple(only[0]), tuple(only[1]))


def _merged(trials: Sequence[Trial]) -> tuple[Trial, ...]:
    """Each trial once, with all processes that either side has of it."""
    found: dict[Path, dict[str, Process]] = {}
    first: dict[Path, Trial] = {}
    for trial in trials:
        place = trial.artifacts.resolve()
        first.setdefault(place, trial)
        found.setdefault(place, {}).update({process.stem: process for process in trial.processes})
    return tuple(
        replace(first[place], run=str(number), processes=tuple(processes.values()))
        for number, (place, processes) in enumerate(found.items())
    )


def _several(side: Captures, index: int) -> bool:
    return len({trial.key[index] for trial in side.captured}) > 1


def _name(trial: Trial, process: Process, with_rank: bool) -> str:
    parts: Iterable[str] = (
        trial_place(*trial.key),
        f"rank {process.rank}" if with_rank or not trial_place(*trial.key) else "",
        f"attempt {process.line.restart}" if process.line.restart else "",
    )
    return ", ".join(filter(None, parts))
