"""The observer effect: each variant with the tool beside itself without it, and whether the tool treats both alike."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from aorta_collectors.investigate.design import NOISY
from aorta_collectors.investigate.files import RUN, STDOUT, Run
from aorta_collectors.investigate.report.conclusion import Conclusion, Standing, counted
from aorta_collectors.investigate.report.numbers import written
from aorta_collectors.investigate.statistics import LEAST, Paired, Sample, paired

# How much more the tool has to add to one variant: this part of the shorter duration, and with an interval less.
_NOTABLE, _NOTABLE_WITH_INTERVAL = 0.2, 0.05
# A single pair says nothing of chance: it takes as much as all of the run, and so many seconds.
_NOTABLE_ALONE, _NOTABLE_ALONE_S = 1.0, 1.0
# With few pairs, a difference has to be as many times as large as runs without the tool differ among themselves.
_BEYOND_CHANCE = 2.0
# Between two runs that are made one after the other, hardly anything is done. Later, the machine may be another one.
_ONE_AFTER_THE_OTHER_S = 30.0


@dataclass(frozen=True)
class Beside:
    """One repetition of a variant with the tool, and without it.

    Attributes:
        same_output: Whether stdout was the same, byte for byte; None where it was not kept.
    """

    repetition: int
    with_tool: Run
    without: Run
    same_output: bool | None

    @property
    def same_exit_code(self) -> bool:
        return bool(self.with_tool.record["exit_code"] == self.without.record["exit_code"])

    @property
    def is_at_once(self) -> bool:
        """Whether they were made one after the other: one that was made again later met another machine."""
        first, second = sorted((self.with_tool, self.without), key=lambda run: run.number)
        if second.number - first.number != 1:
            return False
        try:
            ended = datetime.datetime.fromisoformat(first.record["ended_at"])
            begun = datetime.datetime.fromisoformat(second.record["started_at"])
            return 0 <= (begun - ended).total_seconds() <= _ONE_AFTER_THE_OTHER_S
        except (TypeError, ValueError):  # times that are none, of which `verify` tells
            return False

    @property
    def has_exit_code(self) -> bool:
        return any(run.record["exit_code"] is not None for run in (self.with_tool, self.without))

    def to_json(self) -> dict[str, Any]:
        return {
            "repetition": self.repetition,
            "with_tool": _fields(self.with_tool),
            "without": _fields(self.without),
            "same_output": self.same_output,
        }


@dataclass(frozen=True)
class OfVariant:
    """
    Attributes:
        durations: Without the tool first, then with it, of repetitions in which both completed, one after the other.
    """

    variant: str
    beside: tuple[Beside, ...]
    durations: Paired

    @property
    def part(self) -> float | None:
        """What the tool takes, as a part of the duration without it: medians of both."""
        before, added = self.durations.first.median, self.durations.differences.median
        return None if not before or added is None else added / before

    def to_json(self) -> dict[str, Any]:
        return {
            "variant": self.variant,
            "repetitions": [each.to_json() for each in self.beside],
            "durations": self.durations.to_json(),
            "part": self.part,
        }


@dataclass(frozen=True)
class ObserverEffect:
    """
    Attributes:
        differs: Whether the tool slows one variant more than the other; None where that cannot be told.
        is_certain: Whether chance is ruled out by an interval.
        slowed: The variant that it slows more; empty unless `differs`.
        compiled: Variants that run code of torch.compile.
    """

    variants: tuple[OfVariant, ...]
    differs: bool | None
    is_certain: bool
    slowed: str
    compiled: tuple[str, ...] = ()

    @property
    def is_measured(self) -> bool:
        return any(each.beside for each in self.variants)

    def to_json(self) -> dict[str, Any]:
        return {
            "measured": self.is_measured,
            "variants": [each.to_json() for each in self.variants],
            "differs": self.differs,
            "certain": self.is_certain,
            "slowed": self.slowed,
            "compiled": list(self.compiled),
        }


def observer_effect(
    runs: Sequence[Run], variants: Sequence[str], compiled: Sequence[str] = (), *, kind: str
) -> ObserverEffect:
    """Of the runs that ended by themselves after the warm-up.

    Args:
        kind: Of the question. Where time is not asked for, a single pair is shown and nothing is concluded from it.
        compiled: Variants that run code of torch.compile.
    """
    found = tuple(_of_variant(runs, variant) for variant in variants)
    if len(found) < 2:
        return ObserverEffect(found, None, False, "", tuple(compiled))
    slowed, certain = _slowed(*found, may_be_alone=kind in NOISY)
    differs = None if slowed is None else bool(slowed)
    return ObserverEffect(found, differs, certain, slowed or "", tuple(compiled))


def _of_variant(runs: Sequence[Run], variant: str) -> OfVariant:
    by_tool: dict[bool, dict[int, Run]] = {True: {}, False: {}}
    for run in runs:
        if run.counts and run.record["variant"] == variant:
            by_tool[run.record["tool"]][run.record["repetition"]] = run
    both = sorted(by_tool[True].keys() & by_tool[False].keys())
    beside = tuple(
        Beside(each, by_tool[True][each], by_tool[False][each], _same_output(by_tool, each)) for each in both
    )
    completed = [each for each in beside if {each.with_tool.state, each.without.state} == {"completed"}]
    timed = [each for each in completed if each.is_at_once]
    durations = paired(
        {each.repetition: each.without.record["duration_s"] for each in timed if _is_timed(each.without)},
        {each.repetition: each.with_tool.record["duration_s"] for each in timed if _is_timed(each.with_tool)},
    )
    return OfVariant(variant, beside, durations)


def _is_timed(run: Run) -> bool:
    return run.record["duration_s"] is not None


def _same_output(by_tool: dict[bool, dict[int, Run]], repetition: int) -> bool | None:
    digests = [by_tool[tool][repetition].record["sha256"].get(STDOUT) for tool in (True, False)]
    return None if None in digests else digests[0] == digests[1]


def _slowed(a: OfVariant, b: OfVariant, *, may_be_alone: bool) -> tuple[str | None, bool]:
    """Which of two variants the tool adds more to, and whether that is certain; "" for none, None if it cannot be told.

    That the tool adds less to one of them makes the other no slower: what is named has to be slowed by as much itself.
    A run without the tool that was slow by chance would name the wrong one.
    """
    more = paired(_added(a), _added(b)).differences
    shortest = min((each.durations.first.median or 0.0 for each in (a, b)), default=0.0)
    if more.median is None or not shortest:
        return None, False
    named = b if more.median > 0 else a
    by = min(abs(more.median), named.durations.differences.median or 0.0)
    interval = more.interval
    if interval is not None:
        return (named.variant if interval.excludes_zero and by > _NOTABLE_WITH_INTERVAL * shortest else ""), True
    if len(more.values) == 1 and not may_be_alone:
        return None, False
    if len(more.values) == 1:
        return (named.variant if by > max(_NOTABLE_ALONE * shortest, _NOTABLE_ALONE_S) else ""), False
    chance = max(each.durations.first.spread for each in (a, b))
    one_way = all(value > 0 for value in more.values) or all(value < 0 for value in more.values)
    is_notable = by > max(_NOTABLE * shortest, _BEYOND_CHANCE * chance)
    return (named.variant if one_way and is_notable else ""), False


def _added(of: OfVariant) -> dict[int, float]:
    return dict(zip(of.durations.repetitions, of.durations.differences.values, strict=True))


def conclude_observer(effect: ObserverEffect) -> list[Conclusion]:
    """What the tool does to the variants, where it does anything that matters."""
    found = []
    files = {each.variant: _files(each) for each in effect.variants}
    if effect.differs:
        told = "; ".join(_slows(each) for each in effect.variants)
        doubt = ("" if effect.is_certain else f" {_pairs(effect)}") + _of_compilers(effect)
        sentence = (
            f"The tool slows the {effect.slowed} more: {told}. Durations with the tool say nothing of the difference "
            f"between the variants.{doubt}"
        )
        standing = Standing.EFFECT if effect.is_certain else Standing.CORRELATION
        found.append(Conclusion(sentence, standing, (), tuple(path for paths in files.values() for path in paths)))
    for each in effect.variants:
        codes = [one for one in each.beside if not one.same_exit_code]
        for one in codes:
            found.append(
                Conclusion(
                    f"The tool changes how the {each.variant} ends, in repetition {one.repetition}: exit code "
                    f"{one.without.record['exit_code']} without it, {one.with_tool.record['exit_code']} with it.",
                    Standing.CORRELATION,
                    (),
                    files[each.variant],
                )
            )
    return found


def _slows(of: OfVariant) -> str:
    before, after = of.durations.first.median, of.durations.second.median
    added, part = of.durations.differences.median, of.part
    if before is None or after is None or added is None or part is None:
        return f"the {of.variant} was not measured"
    return (
        f"the {of.variant} goes from {seconds(before)} without it to {seconds(after)} with it, "
        f"{'by' if len(of.durations.repetitions) == 1 else 'pair by pair by'} {seconds(added)} ({part:+.0%})"
    )


def _pairs(effect: ObserverEffect) -> str:
    fewest = min(len(each.durations.repetitions) for each in effect.variants)
    verb = "is" if fewest == 1 else "are"
    return (
        f"There {verb} {counted(fewest, 'pair')} of each without an interval, which takes {LEAST}: chance is not ruled "
        "out."
    )


def _of_compilers(effect: ObserverEffect) -> str:
    if not effect.compiled:
        return ""
    return (
        f" The {' and the '.join(effect.compiled)} {'runs' if len(effect.compiled) == 1 else 'run'} code of "
        "torch.compile: of two such runs, one may have compiled what the other found in a cache."
    )


def seconds(value: float) -> str:
    return written("duration_s", value)


def describe_outputs(of: OfVariant) -> str:
    """Exit codes and output with the tool beside those without it."""
    outputs = [each.same_output for each in of.beside]
    same = sum(output is True for output in outputs)
    total = counted(len(of.beside), "repetition")
    told = [each for each in of.beside if each.has_exit_code]
    codes = sum(each.same_exit_code for each in told)
    # Of runs that were ended, neither has a code: that is no agreement.
    said = f"the same exit code in {codes}" if told else "an exit code in none"
    return f"{said} and the same stdout in {same} of {total}"


def describe_added(of: OfVariant) -> str:
    """What the tool adds to the duration, as far as that is told from what runs differ by themselves."""
    differences, interval = of.durations.differences, of.durations.differences.interval
    told, aside = differences.describe(seconds), of.durations.aside
    if len(differences.values) == 1:
        return f"the difference is {told}, of one pair, which does not rule out chance"
    is_shown = interval.excludes_zero if interval is not None else len({value > 0 for value in differences.values}) == 1
    if is_shown and (differences.median or 0.0) > 0:
        part = "" if of.part is None else f" ({of.part:+.0%} of the duration without it)"
        return f"the tool adds {told}{part}{aside}"
    if interval is not None and interval.excludes_zero:
        return (
            f"with the tool runs were shorter, by {Sample(tuple(-one for one in differences.values)).describe(seconds)}"
        )
    return f"what the tool adds is not shown: {told}{aside}"


def _files(of: OfVariant) -> tuple[Any, ...]:
    return tuple(run.directory / RUN for each in of.beside for run in (each.without, each.with_tool))


def _fields(run: Run) -> dict[str, Any]:
    return {"run": run.directory.name, **{key: run.record[key] for key in ("state", "exit_code", "duration_s")}}
