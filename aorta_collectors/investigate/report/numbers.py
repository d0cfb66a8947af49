"""Numbers of the runs: what run.json has of each, medians with intervals, and differences of runs that belong together.

Only runs that completed, and were no warm-up, count. Absolute values come before differences.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from aorta_collectors.analysis.captures import NUMERICS
from aorta_collectors.analysis.numerics.phases import steps_counted
from aorta_collectors.analysis.numerics.significance import LEAST as LEAST_STEPS
from aorta_collectors.investigate.design import BASELINE, CANDIDATE
from aorta_collectors.investigate.files import RUN, Run
from aorta_collectors.investigate.report.conclusion import Conclusion, Standing
from aorta_collectors.investigate.report.subjects import Subject, with_collector
from aorta_collectors.investigate.statistics import LEAST, Paired, Sample, paired
from aorta_collectors.report.memory_words import size
from aorta_collectors.report.wording import number

#: Of every run.
OWN = ("duration_s", "cpu_s", "max_rss_bytes")
#: What of a run's numbers answers how long something takes, in words, and of what: the run, and a step of it.
_STEP_MS, _STEPS = "numerics_step_ms_p50", "numerics_steps"
_DURATIONS = {"duration_s": "{variant}", _STEP_MS: "a step of {variant}"}
_PERCENTILE = re.compile(r"_p\d+$")
# Numbers of a run that say which, and not how much.
_NO_AMOUNTS = ("exit_code", "script_exit_code", "rank", "pid", "seed", "world_size")


@dataclass(frozen=True)
class OfMetric:
    """One number of all runs, with the tool or without.

    Attributes:
        samples: By variant, in the order of the repetitions.
        paired: Baseline and candidate of each repetition; None of a single variant.
    """

    name: str
    tool: bool
    samples: dict[str, Sample]
    paired: Paired | None

    def write(self, value: float) -> str:
        """A value with its unit."""
        return written(self.name, value)

    def to_json(self) -> dict[str, Any]:
        return {
            "metric": self.name,
            "tool": self.tool,
            **{variant: sample.to_json() for variant, sample in self.samples.items()},
            "paired": None if self.paired is None else self.paired.to_json(),
        }


def written(name: str, value: float) -> str:
    if name.endswith("_bytes"):
        return size(value)
    is_rate = "_per_" in name
    quantity = _PERCENTILE.sub("", name)
    unit = "" if is_rate else next((unit for unit in ("s", "ms", "us") if quantity.endswith(f"_{unit}")), "")
    return f"{number(value)} {unit}".rstrip()


def counting(runs: Sequence[Run]) -> list[Run]:
    """Those that completed and were no warm-up."""
    return [run for run in runs if run.state == "completed" and not run.record["warm_up"]]


def metrics_of(runs: Sequence[Run], variants: Sequence[str]) -> list[OfMetric]:
    """The numbers of runs that count: durations and the like first, then those of the trials' records that vary."""
    found = []
    for tool in (True, False):
        these = [run for run in counting(runs) if run.record["tool"] == tool]
        names = dict.fromkeys(name for run in these for name in run.record["metrics"])
        for name in (*OWN, *(name for name in names if name not in (*OWN, *_NO_AMOUNTS))):
            by_variant = {variant: _values(these, variant, name) for variant in variants}
            every = [value for values in by_variant.values() for value in values.values()]
            if not every or (name not in OWN and len(set(every)) == 1):
                continue
            samples = {
                variant: Sample(tuple(values[key] for key in sorted(values))) for variant, values in by_variant.items()
            }
            both = paired(by_variant[BASELINE], by_variant[CANDIDATE]) if len(variants) > 1 else None
            found.append(OfMetric(name, tool, samples, both if both is not None and both.repetitions else None))
    return found


def _values(runs: Sequence[Run], variant: str, name: str) -> dict[int, float]:
    """By repetition."""
    found = {}
    for run in runs:
        value = run.record[name] if name in OWN else run.record["metrics"].get(name)
        if run.record["variant"] == variant and value is not None:
            found[int(run.record["repetition"])] = float(value)
    return found


def conclude_durations(
    metrics: Sequence[OfMetric], runs: Sequence[Run], *, is_controlled: bool, is_disturbed: bool
) -> Iterator[Conclusion]:
    """How long the variants and their steps take, without the tool where that was measured, and with it.

    Args:
        is_controlled: Whether order and warm-up are such that a difference is one of the variants.
        is_disturbed: Whether the tool slows one variant more than the other.
    """
    # The steps first: a run's duration has imports, compiling and the like in it.
    wanted = [(name, tool) for name in reversed(_DURATIONS) for tool in (False, True)]
    for name, tool in wanted:
        found = next((each for each in metrics if (each.name, each.tool) == (name, tool)), None)
        if found is None or found.paired is None:
            continue
        held = is_controlled and not (tool and is_disturbed)
        sentence, standing = _durations(found, found.paired, held)
        if name != _STEP_MS:
            sentence += _share_of_steps(runs)
        if tool and is_disturbed:
            sentence += " The tool slows one variant more than the other, so that this comparison does not hold."
        files = [run.directory / RUN for run in counting(runs) if run.record["tool"] == tool]
        yield Conclusion(sentence, standing, (), tuple(files))


def too_few_steps(subjects: Sequence[Subject]) -> Iterator[tuple[str, str]]:
    """Runs of which too few steps were timed to be compared, each with that in words."""
    for subject in with_collector(subjects, NUMERICS):
        timed = [steps_counted([manifest]) for manifest in subject.manifests(NUMERICS)]
        if timed and max(timed) < LEAST_STEPS:
            told = (
                f"numerics: not enough steps: {max(timed)} were timed, and comparing steps of two runs takes "
                f"{LEAST_STEPS} on each side; no step, phase or layer is graded"
            )
            yield subject.label, told


def _share_of_steps(runs: Sequence[Run]) -> str:
    """Which part of the runs' durations their steps are, where that is known of both variants; or ""."""
    told = []
    for variant in (BASELINE, CANDIDATE):
        parts, steps = [], set()
        for run in counting(runs):
            of, seconds = run.record["metrics"], run.record["duration_s"]
            if run.record["variant"] == variant and seconds and of.get(_STEP_MS) and of.get(_STEPS):
                parts.append(of[_STEPS] * of[_STEP_MS] / 1000 / seconds)
                steps.add(int(of[_STEPS]))
        if not parts:
            return ""
        count = f"{min(steps)} to {max(steps)}" if len(steps) > 1 else str(*steps)
        told.append(f"{min(1.0, statistics.median(parts)):.0%} of the {variant}'s ({count} steps)")
    return f" Steps, as timed with the tool, are {' and '.join(told)}: the rest is start-up, compiling and the like."


def _durations(found: OfMetric, both: Paired, held: bool) -> tuple[str, Standing]:
    how = "With the tool" if found.tool else "Without the tool"
    count = len(both.repetitions)
    baseline, candidate = (_DURATIONS[found.name].format(variant=f"the {variant}") for variant in (BASELINE, CANDIDATE))
    differences = f"{both.differences.describe(found.write)}{both.aside}"
    sentence = (
        f"{how}, {baseline} takes {both.first.describe(found.write)} and {candidate} "
        f"{both.second.describe(found.write)}; differences, pair by pair: {differences}. "
        f"The candidate is slower in {both.increases} of {count} and faster in {both.decreases}."
    )
    interval = both.differences.interval
    if interval is None:
        return f"{sentence} An interval takes {LEAST} pairs or more: no claim.", Standing.OPEN
    if not interval.excludes_zero:
        return f"{sentence} The interval holds 0: no difference is shown.", Standing.OPEN
    word = "slower" if interval.low > 0 else "faster"
    sentence += f" The interval does not hold 0: the candidate is {word}."
    return sentence, Standing.EFFECT if held else Standing.CORRELATION
