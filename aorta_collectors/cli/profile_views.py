"""The views of `aorta-collectors profile`: each asks the analysis, and hands the answer to what draws it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from aorta_collectors.analysis.captures import NUMERICS, Trial
from aorta_collectors.analysis.numerics.tables import Lines
from aorta_collectors.analysis.profile import Profile, profile_of
from aorta_collectors.analysis.profile_baseline import against, side_of
from aorta_collectors.analysis.profile_naive import naive_of
from aorta_collectors.analysis.profile_stacks import stacks_of
from aorta_collectors.cli.compare_side import parse
from aorta_collectors.cli.output import Output
from aorta_collectors.cli.reading import tell_problems
from aorta_collectors.errors import ArtifactError
from aorta_collectors.report import (
    flamegraph,
    profile,
    profile_baseline,
    profile_energy,
    profile_exchange,
    profile_naive,
    profile_roofline,
)


@dataclass(frozen=True)
class Asked:
    """What a view works on.

    Attributes:
        found: Trials with their profiles, those bricks only that are in focus; one at least.
        most: Bricks that are listed; None for all.
    """

    found: Sequence[tuple[Trial, Profile]]
    lines: Lines
    out: Output
    as_json: bool
    most: int | None
    focus: Sequence[str]
    path: Path

    @property
    def profile(self) -> Profile:
        """Of the first trial."""
        return self.found[0][1]

    @property
    def profiles(self) -> list[Profile]:
        return [profile for _, profile in self.found]

    def json(self, of_trial: Callable[[Profile], dict[str, Any]]) -> None:
        """One document: trials, each with its place."""
        trials = [
            {"run": each.run, "cell": each.cell, "trial": each.trial, "label": each.label, **of_trial(each)}
            for each in self.profiles
        ]
        self.out.json({"trials": trials})


View = Callable[[Asked], None]


def table(asked: Asked) -> None:
    if asked.as_json:
        asked.json(Profile.as_json)
    else:
        profile.render(asked.profiles, asked.out.console(), asked.most)


def granular(asked: Asked) -> None:
    if asked.as_json:
        asked.json(lambda each: {"roofline": each.as_json()["roofline"], "points": profile_roofline.plain(each)})
    else:
        profile_roofline.render(asked.profile, asked.out.console(), asked.most)


def energy(asked: Asked) -> None:
    if asked.as_json:
        asked.json(lambda each: {"energy": each.as_json()["energy"]})
    else:
        profile_energy.render(asked.profile, asked.out.console())


def naive(threshold: float) -> View:
    def view(asked: Asked) -> None:
        if asked.as_json:
            asked.json(lambda each: {"naive": naive_of(each, threshold).as_json()})
        else:
            profile_naive.render(asked.profile, naive_of(asked.profile, threshold), asked.out.console(), asked.most)

    return view


def baseline(other: str) -> View:
    """Of the first trial against the first one of `other`, PATH[:CELL[:TRIAL]][@RANK]."""

    def view(asked: Asked) -> None:
        captures = parse(other, asked.path).captures((), (), (), NUMERICS)
        tell_problems(captures)
        trial = captures.captured[0]
        of_before = profile_of(asked.lines, trial)
        with contextlib.suppress(ArtifactError):  # bricks in focus on one side alone are new
            of_before = of_before.on(asked.focus)
        before = side_of(asked.lines, trial, of_before)
        after = side_of(asked.lines, *asked.found[0])
        for captured, what in ((captures.captured, "baseline"), (asked.found, "run")):
            if len(captured) > 1:
                click.echo(f"the {what} has {len(captured)} trials, of which the first is compared", err=True)
        comparison = against(before, after)
        if asked.as_json:
            asked.out.json(comparison.as_json())
        else:
            profile_baseline.render(comparison, asked.out.console(), asked.most)

    return view


def pictures(format_: str) -> View:
    """flamegraph, speedscope or folded, of the first trial."""

    def view(asked: Asked) -> None:
        shown = asked.profile
        roots = stacks_of(shown.bricks)
        if not roots:
            raise ArtifactError(
                f"{shown.label} has no bricks with a time: modules are timed with `profile: deferred` or "
                "`profile: immediate`"
            )
        if format_ == "speedscope":
            asked.out.json(profile_exchange.speedscope(roots, shown.label))
        elif format_ == "folded":
            asked.out.stream.writelines(profile_exchange.folded(roots))
        else:
            said = f"self time of modules, {shown.steps} steps, profile: {shown.profiled}; click to zoom"
            asked.out.stream.write(flamegraph.flamegraph(roots, shown.label, said))

    return view
