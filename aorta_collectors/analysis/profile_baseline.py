"""A profile held against another, the baseline: what takes longer, by how much, and whether that is more than chance.

The grade is of the ratio of the whole step's median time to the baseline's, or of its time per token (else per sample)
where steps of the two have different numbers of them:

| grade | at most |
|---|---|
| A | 1.02, or no significant difference |
| B | 1.05 |
| C | 1.10 |
| D | 1.25 |
| E | 1.50 |
| F | more |

There is none where a side has too few steps to tell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from aorta_collectors.analysis.captures import Trial
from aorta_collectors.analysis.numerics.bricks import Brick
from aorta_collectors.analysis.numerics.phases import STEP
from aorta_collectors.analysis.numerics.processes import processes_of
from aorta_collectors.analysis.numerics.samples import Samples, samples_of
from aorta_collectors.analysis.numerics.significance import LEAST, LEVEL, holm, mann_whitney, median
from aorta_collectors.analysis.numerics.tables import Lines
from aorta_collectors.analysis.profile import Profile
from aorta_collectors.numerics.spans.span import PHASES

_GRADES = (("A", 1.02), ("B", 1.05), ("C", 1.10), ("D", 1.25), ("E", 1.50))


@dataclass(frozen=True)
class Change:
    """One brick or phase on both sides. Times are of one step.

    Attributes:
        direction: Of a brick; empty for a phase.
        before_ms, after_ms: Medians over steps; where spans were not kept, means from the summary.
        ratio: after over before; None where before is 0.
        p_value: Adjusted for the number of comparisons; None with too few steps on a side.
        verdict: slower, faster, same (no significant difference), or unknown (not enough steps).
        steps: On the side that has fewer; 0 where spans were not kept.
    """

    name: str
    direction: str
    before_ms: float
    after_ms: float
    ratio: float | None
    p_value: float | None
    verdict: str
    steps: int

    @property
    def difference_ms(self) -> float:
        return self.after_ms - self.before_ms


@dataclass(frozen=True)
class Baseline:
    """Attributes:
    before, after: Labels of the two trials.
    per: What the grade is of a unit of: step, token or sample.
    grade: A to F; None where there are not enough steps.
    ratio: What it was given for.
    step: The whole step; None where no step was measured on a side.
    phases, bricks: By the time that they cost more, the largest first.
    missing, new: Layers that are on one side alone.
    unlike: In which the two runs differ, so that their times may.
    """

    before: str
    after: str
    per: str
    grade: str | None
    ratio: float | None
    step: Change | None
    phases: tuple[Change, ...]
    bricks: tuple[Change, ...]
    missing: tuple[str, ...]
    new: tuple[str, ...]
    unlike: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        found = asdict(self)
        for change in [found["step"], *found["phases"], *found["bricks"]]:
            if change is not None:
                change["difference_ms"] = change["after_ms"] - change["before_ms"]
        return {**found, "test": "Mann-Whitney U, two-sided, Holm", "level": LEVEL, "least_steps": LEAST}


@dataclass(frozen=True)
class Side:
    """A trial's profile with the durations step by step."""

    profile: Profile
    samples: Samples


def side_of(lines: Lines, trial: Trial, profile: Profile) -> Side:
    """Read what a comparison needs of a trial beside its profile."""
    return Side(profile, samples_of(lines, processes_of(trial)))


def against(before: Side, after: Side) -> Baseline:
    """Compare a trial, `after`, with the baseline, `before`."""
    step = [_change(STEP, "", before.samples.steps_ms, after.samples.steps_ms)]
    phases = _phases(before.samples, after.samples)
    bricks, missing, new = _bricks(before, after)
    changes = [change for change in (*step, *phases, *bricks) if change is not None]
    judged = [_judged(*pair) for pair in zip(changes, holm([change.p_value for change in changes]), strict=True)]
    whole = next((change for change in judged if change.name == STEP and not change.direction), None)
    of_bricks = [change for change in judged if change.direction]
    of_phases = [change for change in judged if change is not whole and not change.direction]
    per, scale = _unit(before.samples, after.samples)
    ratio = None if whole is None or whole.ratio is None else whole.ratio * scale
    return Baseline(
        before.profile.label,
        after.profile.label,
        per,
        None if whole is None or ratio is None else _grade(whole.verdict, ratio, scale),
        ratio,
        whole,
        _by_cost(of_phases),
        _by_cost(of_bricks),
        missing,
        new,
        _unlike(before.profile, after.profile),
    )


def _by_cost(changes: Sequence[Change]) -> tuple[Change, ...]:
    return tuple(sorted(changes, key=lambda change: -change.difference_ms))


def _change(name: str, direction: str, before: Sequence[float], after: Sequence[float]) -> Change | None:
    middle_before, middle_after = median(before), median(after)
    if middle_before is None or middle_after is None:
        return None
    return Change(
        name,
        direction,
        middle_before,
        middle_after,
        middle_after / middle_before if middle_before else None,
        mann_whitney(before, after),
        "",
        min(len(before), len(after)),
    )


def _phases(before: Samples, after: Samples) -> list[Change]:
    names = [name for name in PHASES if name in before.phases_ms and name in after.phases_ms]
    found = (_change(name, "", before.phases_ms[name], after.phases_ms[name]) for name in names)
    return [change for change in found if change is not None]


def _bricks(before: Side, after: Side) -> tuple[list[Change], tuple[str, ...], tuple[str, ...]]:
    """Those on both sides, by layer and direction; and layers that are on one side alone."""
    of_before, of_after = _table(before.profile), _table(after.profile)
    changes = []
    for key in of_after:
        if key not in of_before:
            continue
        samples = [tuple(us / 1000 for us in side.samples.bricks_us.get(key, ())) for side in (before, after)]
        change = _change(*key, *samples) or _of_means(of_before[key], of_after[key])
        if change is not None:
            changes.append(change)
    layers_before, layers_after = ({layer: None for layer, _ in keys} for keys in (of_before, of_after))
    return (
        changes,
        tuple(layer for layer in layers_before if layer not in layers_after),
        tuple(layer for layer in layers_after if layer not in layers_before),
    )


def _table(profile: Profile) -> Mapping[tuple[str, str], Brick]:
    return {brick.key: brick for brick in profile.bricks}


def _of_means(before: Brick, after: Brick) -> Change | None:
    a, b = before.self_ms_per_step, after.self_ms_per_step
    if a is None or b is None:
        return None
    return Change(before.layer, before.direction, a, b, b / a if a else None, None, "", 0)


def _judged(change: Change, p_value: float | None) -> Change:
    if p_value is None:
        verdict = "unknown"
    elif p_value >= LEVEL or change.after_ms == change.before_ms:
        verdict = "same"
    else:
        verdict = "slower" if change.after_ms > change.before_ms else "faster"
    return replace(change, p_value=p_value, verdict=verdict)


def _unit(before: Samples, after: Samples) -> tuple[str, float]:
    """What is compared a unit of, and by what a ratio of step times becomes one of that unit's."""
    for per, of_before, of_after in (
        ("token", before.tokens, after.tokens),
        ("sample", before.samples, after.samples),
    ):
        if of_before and of_after and of_before != of_after:
            return per, of_before / of_after
    return "step", 1.0


def _grade(verdict: str, ratio: float, scale: float) -> str | None:
    if verdict == "unknown":
        return None
    if verdict == "same" and scale == 1.0:
        return "A"
    return next((grade for grade, most in _GRADES if ratio <= most), "F")


def _unlike(before: Profile, after: Profile) -> tuple[str, ...]:
    """Devices, threads and options in which the sides differ."""
    told = []
    pairs: list[tuple[str, object, object]] = [
        ("device", ", ".join(before.devices), ", ".join(after.devices)),
        ("ranks", len(before.ranks), len(after.ranks)),
    ]
    if before.roofline is not None and after.roofline is not None:
        pairs.append(("machine", before.roofline.device, after.roofline.device))
        pairs.append(("threads", before.roofline.threads, after.roofline.threads))
    options = ("trace", "profile", "escalate", "step_metrics")
    pairs += [(option, before.config.get(option), after.config.get(option)) for option in options]
    for what, a, b in pairs:
        if a != b:
            told.append(f"{what}: {a or '-'} before, {b or '-'} now")
    return tuple(told)
