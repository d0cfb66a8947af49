"""The profile of one trial: all that numerics says of where its time went, as plain values to be drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from aorta_collectors.analysis.captures import Trial
from aorta_collectors.analysis.numerics.bricks import Brick, bricks_of, focused
from aorta_collectors.analysis.numerics.energy import Energy, energy_of
from aorta_collectors.analysis.numerics.escalations import Escalated, escalated_of
from aorta_collectors.analysis.numerics.gaps import gaps_of
from aorta_collectors.analysis.numerics.groups import groups_of
from aorta_collectors.analysis.numerics.phases import NamedStep, Phase, named_steps_of, phases_of
from aorta_collectors.analysis.numerics.processes import processes_of
from aorta_collectors.analysis.numerics.ranks import (
    Collective,
    Imbalance,
    OfRank,
    collectives_of,
    imbalance_of,
    ranks_of,
)
from aorta_collectors.analysis.numerics.roofline import Roofline, roofline_of
from aorta_collectors.analysis.numerics.tables import Lines
from aorta_collectors.analysis.numerics.throughput import Throughput, throughput_of


@dataclass(frozen=True)
class Profile:
    """One trial.

    Attributes:
        run, cell, trial: As in captures; label: of these, for people.
        steps: Begun, on the rank that began most; evaluations: of them.
        config: The options in force on the first rank.
        bricks: The longest first; those in focus where there is one.
        bricks_timed: How many there were before a focus.
        devices: Such as cpu or cuda:0, once each.
        gaps: What is not shown, and why, a sentence each.
    """

    run: str
    cell: str
    trial: str
    label: str
    steps: int
    evaluations: int
    config: Mapping[str, Any]
    devices: tuple[str, ...]
    throughput: Throughput
    overhead: float | None
    roofline: Roofline | None
    phases: tuple[Phase, ...]
    named_steps: tuple[NamedStep, ...]
    bricks: tuple[Brick, ...]
    bricks_timed: int
    escalated: tuple[Escalated, ...]
    collectives: tuple[Collective, ...]
    ranks: tuple[OfRank, ...]
    imbalance: Imbalance | None
    energy: Energy
    gaps: tuple[str, ...]

    @property
    def profiled(self) -> str:
        """off, deferred or immediate."""
        return str(self.config.get("profile", "off"))

    def phase(self, name: str) -> Phase | None:
        return next((phase for phase in self.phases if phase.name == name), None)

    def on(self, words: Sequence[str]) -> Profile:
        """With the bricks, and the looks at them, that have one of the words in their path or class.

        Raises:
            ArtifactError: None has.
        """
        if not words:
            return self
        bricks = focused(self.bricks, words)
        kept = {brick.key for brick in bricks}
        return replace(self, bricks=bricks, escalated=tuple(each for each in self.escalated if each.key in kept))

    def as_json(self) -> dict[str, Any]:
        """Plain JSON; keys are those of the dataclasses."""
        found = asdict(self)
        found["groups"] = [asdict(group) for group in groups_of(self.bricks)]
        energy = self.energy
        found["energy"] |= {
            "joules_per_step": energy.joules_per_step,
            "joules_per_token": energy.joules_per_token,
            "joules_per_sample": energy.joules_per_sample,
        }
        for each in found["escalated"]:
            each["reasons"] = {
                reason: {"value": value, "threshold": threshold}
                for reason, (value, threshold) in each["reasons"].items()
            }
        found["energy"]["unavailable"] = [{"reason": reason, "ranks": ranks} for reason, ranks in energy.unavailable]
        return found


def _in_order(escalated: Sequence[Escalated], bricks: Sequence[Brick]) -> tuple[Escalated, ...]:
    """The looks at the bricks that take longest first; then those at others."""
    places = {brick.key: place for place, brick in enumerate(bricks)}
    return tuple(sorted(escalated, key=lambda each: places.get(each.key, len(places))))


def profile_of(lines: Lines, trial: Trial) -> Profile:
    """Of a trial in which numerics left something."""
    processes = processes_of(trial)
    summaries = processes.summaries
    ranks, bricks = ranks_of(processes), bricks_of(processes)
    overheads = [rank.overhead for rank in ranks if rank.overhead is not None]
    return Profile(
        *trial.key,
        trial.label,
        max(rank.steps for rank in ranks),
        max(summary.get("evaluation_steps", 0) for summary in summaries),
        dict(summaries[0]["config"]),
        tuple(dict.fromkeys(rank.device for rank in ranks if rank.device)),
        throughput_of(summaries),
        max(overheads, default=None),
        roofline_of(summaries),
        phases_of(summaries),
        named_steps_of(summaries),
        bricks,
        len(bricks),
        _in_order(escalated_of(lines, processes), bricks),
        collectives_of(processes),
        ranks,
        imbalance_of(ranks),
        energy_of(lines, processes),
        gaps_of(processes),
    )
