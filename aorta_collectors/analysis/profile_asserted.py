"""What CI asks of a profile: at least so much throughput, at most so long a step."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aorta_collectors.analysis.numerics.phases import STEP
from aorta_collectors.analysis.profile import Profile
from aorta_collectors.errors import ArtifactError

_AMOUNT = re.compile(r"\s*(\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)\s*([a-zA-Zµμ/_ ]*)\s*")
_THROUGHPUT: Mapping[str, str] = {
    "tokens": "tokens_per_s",
    "token": "tokens_per_s",
    "tok": "tokens_per_s",
    "samples": "samples_per_s",
    "sample": "samples_per_s",
    "steps": "steps_per_s",
    "step": "steps_per_s",
}
_MS: Mapping[str, float] = {"s": 1000.0, "": 1.0, "ms": 1.0, "us": 1e-3, "\u00b5s": 1e-3, "\u03bcs": 1e-3}


@dataclass(frozen=True)
class Wanted:
    """A bound.

    Attributes:
        what: tokens_per_s, samples_per_s, steps_per_s, or p99_ms of the step; empty for tokens where they are known,
            else samples.
        bound: In that unit.
        text: As it was asked for.
    """

    what: str
    bound: float
    text: str


@dataclass(frozen=True)
class Asserted:
    """Whether a bound holds in one trial.

    Attributes:
        label: Of the trial.
        found: In the unit of `what`.
    """

    label: str
    what: str
    bound: float
    found: float
    holds: bool


def wanted_throughput(text: str) -> Wanted:
    """Of a number of tokens or samples a second, or with a unit: 30samples/s, 1250 tokens/s, 2 steps/s.

    Raises:
        ValueError: It is neither.
    """
    bound, unit = _amount(text)
    noun = unit.removesuffix("/s").removesuffix("_per_s").strip()
    if noun and noun not in _THROUGHPUT:
        raise ValueError(f"{text!r} is no throughput; write a number, or one with tokens/s, samples/s or steps/s")
    return Wanted(_THROUGHPUT.get(noun, ""), bound, text)


def wanted_p99(text: str) -> Wanted:
    """Of a duration: 50ms, 0.05s, 800us; milliseconds without a unit. Raises ValueError."""
    bound, unit = _amount(text)
    if unit not in _MS:
        raise ValueError(f"{text!r} is no duration; write one such as 50ms, 0.05s or 800us")
    return Wanted("p99_ms", bound * _MS[unit], text)


def _amount(text: str) -> tuple[float, str]:
    match = _AMOUNT.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} does not begin with a number")
    return float(match.group(1)), match.group(2).strip().lower()


def asserted(profiles: Sequence[Profile], wanted: Sequence[Wanted]) -> tuple[Asserted, ...]:
    """Each bound in each trial.

    Raises:
        ArtifactError: What a bound is of is not known of a trial.
    """
    return tuple(_asserted(profile, each) for profile in profiles for each in wanted)


def _asserted(profile: Profile, wanted: Wanted) -> Asserted:
    throughput = profile.throughput
    if wanted.what == "p99_ms":
        step = profile.phase(STEP)
        what, found = wanted.what, step.p99_ms if step is not None else None
    elif wanted.what:
        what, found = wanted.what, getattr(throughput, wanted.what)
    elif throughput.tokens_per_s is not None:
        what, found = "tokens_per_s", throughput.tokens_per_s
    else:
        what, found = "samples_per_s", throughput.samples_per_s
    if found is None:
        raise ArtifactError(
            f"{profile.label}: {what} is not known, so that {wanted.text!r} cannot be held against it; it takes "
            "`step_metrics: on` and steps that were measured"
        )
    holds = found <= wanted.bound if what == "p99_ms" else found >= wanted.bound
    return Asserted(profile.label, what, wanted.bound, found, holds)
