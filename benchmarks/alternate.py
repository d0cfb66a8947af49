"""Alternation: a step under several variants in one process, in short blocks, in an order drawn anew each round.

A shared machine changes its speed by more than what is to be measured, from process to process and from minute to
minute. Within a round of a few seconds all variants meet the same machine, and many rounds average over its moods. A
block during which other processes were busy is taken once more, and rounds that stayed disturbed are left out as far
as half of them remains. That goes by the load of the others alone, never by the times found.
"""

from __future__ import annotations

import contextlib
import gc
import random
import statistics
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager

from aorta_collectors.numerics.profile.others import Others
from benchmarks.estimate import Samples

#: Puts something in force for one block.
Variant = Callable[[], AbstractContextManager[None]]

BARE = "bare"
_QUIET, _TOO_MUCH = 0.1, 0.5  # cores
_FEWEST_ROUNDS, _ENOUGH_ROUNDS = 2, 6


def bare() -> AbstractContextManager[None]:
    return contextlib.nullcontext()


def alternate(
    step: Callable[[], None],
    variants: Mapping[str, Variant],
    *,
    seconds: float,
    clock: Callable[[], float],
    timed: int,
    discarded: int = 2,
    mean: bool = False,
    to_the_end: bool = False,
    seed: int = 0,
) -> Samples:
    """Seconds of a step under each variant and under none.

    Args:
        seconds: Rounds are begun until this much time has passed, two at least. A round has one block of every variant
            and two of the bare step, with which all others are compared.
        timed, discarded: Steps of a block. The first ones attach hooks and warm caches, so they do not count.
        mean: Take the mean of a block's steps, of which not all are alike, rather than their median.
        to_the_end: Time the block as a whole, with the end of the variant, where it writes what is still to be written.
    """
    everything: dict[str, Variant] = {BARE: bare, **variants}
    order = [BARE, *everything]
    chance = random.Random(seed)
    rounds: list[tuple[float, dict[str, float]]] = []
    for _ in range(3):
        step()
    end = time.monotonic() + seconds
    while len(rounds) < _FEWEST_ROUNDS or time.monotonic() < end:
        chance.shuffle(order)
        times: dict[str, list[float]] = {name: [] for name in everything}
        disturbed = 0.0
        for name in order:
            others, taken = _block(step, everything[name], timed, discarded, clock, to_the_end=to_the_end)
            if others > _QUIET and time.monotonic() < end:
                again = _block(step, everything[name], timed, discarded, clock, to_the_end=to_the_end)
                others, taken = min((others, taken), again)
            times[name] += taken
            disturbed = max(disturbed, others)
        middle = statistics.fmean if mean else statistics.median
        rounds.append((disturbed, {name: middle(taken) for name, taken in times.items()}))
    return _quiet(rounds)


def _quiet(rounds: list[tuple[float, dict[str, float]]]) -> Samples:
    """The quiet rounds, or the quieter half if those are fewer."""
    rounds = sorted(rounds, key=lambda found: found[0])
    kept = max(sum(disturbed <= _QUIET for disturbed, _ in rounds), (len(rounds) + 1) // 2)
    kept = max(kept, min(_FEWEST_ROUNDS, len(rounds)))
    worst = rounds[kept - 1][0]
    told = f"{kept} of {len(rounds)} rounds"
    if worst:
        told += f", others busy on {worst:.2g} cores or less"
    if worst > _TOO_MUCH:
        told += ": DISTURBED, not to be trusted"
    if kept < _ENOUGH_ROUNDS:
        told += ": TOO FEW for an interval"
    return Samples([found for _, found in rounds[:kept]], told)


def _block(
    step: Callable[[], None],
    variant: Variant,
    timed: int,
    discarded: int,
    clock: Callable[[], float],
    *,
    to_the_end: bool,
) -> tuple[float, list[float]]:
    """Cores that others were busy on, and seconds of each step that counts, or their mean if timed as a whole.

    Processor time is hardly changed by others, so they do not count there.
    """
    gc.collect()  # one variant's garbage must not be collected on another's time
    times: list[float] = []
    with variant():
        for _ in range(discarded):
            step()
        others = Others()
        began = clock()
        for _ in range(timed):
            start = clock()
            step()
            times.append(clock() - start)
    whole = (clock() - began) / timed
    disturbed = 0.0 if clock is time.process_time else others.cores()
    return disturbed, [whole] if to_the_end else times
