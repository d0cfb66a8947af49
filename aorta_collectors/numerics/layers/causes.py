"""Why a layer gave out NaN or Inf: kinds of cause, each with the evidence that speaks for it, the strongest first.

Rules over what was found at the layer, not over what might have been: a cause without evidence is not named, and where
there is none of any, that the layer itself made it is all that is said.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import torch

from aorta_collectors.numerics.layers.layer_reading import LayerReading
from aorta_collectors.numerics.spans.span import BACKWARD
from aorta_collectors.observe.tensor_stats import TensorStats, dtype_name

# The part of a dtype's largest number that speaks for an overflow, and how much a run-up has to have grown.
_NEAR = 16
_GROWN = 10.0
_ROOTS = re.compile(r"sqrt|norm|pow|dist|rms", re.IGNORECASE)
_LOGS = re.compile(r"log", re.IGNORECASE)
_DIVISIONS = re.compile(r"div|reciprocal|rsqrt", re.IGNORECASE)


class Given(NamedTuple):
    """A tensor beside the bad one: an input, a parameter, or the gradient that came in.

    Attributes:
        is_spoilt: Whether it is known only as it is now, after the layer has changed it in place.
    """

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    stats: TensorStats
    is_spoilt: bool = False


class Cause(NamedTuple):
    """A kind of cause, and what speaks for it in a sentence."""

    kind: str
    evidence: str


@dataclass(frozen=True)
class Facts:
    """What was found.

    Attributes:
        seen: The bad reading.
        layer, module_type: Where it was made, as far as that can be told.
        step: Of the clock.
        inputs: What the layer was called with; of a gradient, the gradients of its outputs.
        outputs: Statistics of the layer's outputs in the forward pass, where the gradient is bad.
        parameters: Of the layer.
        operations: Names of the last operations of the layer, the last one first, as autograd has them.
        root_inputs: What the model was called with.
        before: The last layer that was seen clean in this pass; empty for none.
        run_up: (step, largest finite magnitude) of the same tensor in the last steps, this one last.
        masked_rows: Rows that a softmax had nothing but -Inf of.
        flat_rows: Rows without any variance that a norm divides by it; eps_is_lost where its eps is 0 in the dtype.
        bad_lookups: Rows of an embedding that were looked up and hold NaN or Inf.
    """

    seen: LayerReading
    layer: str
    module_type: str
    step: int
    inputs: Sequence[Given] = ()
    outputs: Sequence[Given] = ()
    parameters: Sequence[Given] = ()
    operations: Sequence[str] = ()
    root_inputs: Sequence[Given] = ()
    before: str = ""
    run_up: Sequence[tuple[int, float]] = ()
    masked_rows: int = 0
    flat_rows: int = 0
    eps_is_lost: bool = False
    bad_lookups: Sequence[int] = ()

    @property
    def inputs_are_bad(self) -> bool:
        """Whether the layer got something bad. -Inf alone is what a mask puts there, and a layer may be made for it."""
        return any(
            not (given.stats.is_finite or given.stats.only_negative_infinite)
            for given in self.inputs
            if not given.is_spoilt
        )


def causes_of(facts: Facts) -> list[Cause]:
    """At least one."""
    found = list(_from_outside(facts)) if _is_from_outside(facts) else [*_from_parameters(facts), *_made_here(facts)]
    return found or [_nothing_else(facts)]


def _is_from_outside(facts: Facts) -> bool:
    if facts.seen.direction == BACKWARD:
        return not facts.before
    return facts.inputs_are_bad


def _from_outside(facts: Facts) -> Iterator[Cause]:
    bad = [given for given in facts.root_inputs if not given.stats.is_finite]
    if facts.seen.direction == BACKWARD:
        yield Cause(
            "loss",
            "no gradient of another layer was seen before it in this pass: it came in bad from the loss, or from code "
            "behind the model",
        )
        return
    if bad:
        yield Cause("data", f"the model itself was called with {_amount(bad[0].stats)} in {bad[0].name}")
        return
    place = f"between {facts.before} and {facts.layer}" if facts.before else f"before {facts.layer}"
    yield Cause(
        "outside",
        f"its input was bad already, though all layers that were watched before are clean: code {place} that is no "
        "module, or data that comes in by another way",
    )


def _from_parameters(facts: Facts) -> Iterator[Cause]:
    if facts.bad_lookups:
        rows = ", ".join(str(row) for row in facts.bad_lookups)
        yield Cause("embedding_rows", f"rows that were looked up hold NaN or Inf: {rows}")
    for given in facts.parameters:
        if not given.stats.is_finite:
            origin = "an earlier optimizer step" if facts.step > 1 else "a checkpoint or the initialization"
            yield Cause("parameters", f"{given.name} holds {_amount(given.stats)}: from {origin}")
            return


def _made_here(facts: Facts) -> Iterator[Cause]:
    if facts.masked_rows:
        yield Cause("masked_row", f"{facts.masked_rows} rows of its input are -Inf throughout: softmax of it is 0 / 0")
    if facts.flat_rows:
        lost = ", and its eps is 0 in this dtype" if facts.eps_is_lost else ""
        yield Cause("zero_variance", f"{facts.flat_rows} rows of its input have no variance{lost}: division by zero")
    yield from _of_operations(facts)
    yield from _overflow(facts)
    yield from _exploding(facts)


def _of_operations(facts: Facts) -> Iterator[Cause]:
    """What its operations, or its class where they are not known, do to values that its inputs hold."""
    names = facts.operations or (facts.module_type,)
    own = next((name for name in facts.operations if name.startswith("autograd.Function")), None)
    if own is not None:
        side = "backward" if facts.seen.direction == BACKWARD else "forward"
        yield Cause("own_function", f"it computes with {own}, whose {side} is the program's own")
    if facts.seen.direction == BACKWARD:
        zeros = next((given for given in facts.outputs if given.stats.zero_count), None)
        root = next((name for name in names if _ROOTS.search(name)), None)
        if root is not None and zeros is not None:
            yield Cause(
                "derivative_at_zero",
                f"{root} was computed, and {zeros.name} holds {zeros.stats.zero_count} zeros, where its derivative is "
                "infinite",
            )
        return
    for given in facts.inputs:
        stats = given.stats
        if given.is_spoilt or stats.finite_min is None:
            continue
        log = next((name for name in names if _LOGS.search(name)), None)
        root = next((name for name in names if "sqrt" in name.lower()), None)
        division = next((name for name in names if _DIVISIONS.search(name)), None)
        if log is not None and stats.finite_min <= 0 and "softmax" not in log.lower():
            yield Cause("log", f"{log} of {given.name}, which goes down to {stats.finite_min:.4g}")
        elif root is not None and stats.finite_min < 0:
            yield Cause("root_of_negative", f"{root} of {given.name}, which goes down to {stats.finite_min:.4g}")
        elif division is not None and stats.zero_count:
            yield Cause("division", f"{division}, and {given.name} holds {stats.zero_count} zeros")


def _overflow(facts: Facts) -> Iterator[Cause]:
    dtype = facts.seen.dtype
    if not dtype.is_floating_point:
        return
    largest = torch.finfo(dtype).max
    known = [(given.name, given.stats.finite_abs_max or 0.0) for given in facts.inputs if not given.is_spoilt]
    known.append(("what is finite of it", facts.seen.stats.finite_abs_max or 0.0))
    name, peak = max(known, key=lambda each: each[1])
    if peak >= largest / _NEAR:
        yield Cause(
            "overflow", f"{name} reaches {peak:.4g}, and {dtype_name(dtype)} ends at {largest:.4g}: sums run over"
        )
    elif facts.seen.stats.nan_count == 0 and not facts.seen.stats.only_negative_infinite:
        division = next((name for name in facts.operations if _DIVISIONS.search(name)), None)
        if division is not None:
            yield Cause("division", f"Inf without NaN, as a divisor of 0 gives, and {division} is among what it does")
        else:
            yield Cause("overflow", f"Inf without NaN: results beyond {largest:.4g}, the end of {dtype_name(dtype)}")


def _exploding(facts: Facts) -> Iterator[Cause]:
    peaks = [peak for _, peak in facts.run_up]
    grows = len(peaks) > 2 and all(one <= other for one, other in pairwise(peaks))
    if grows and peaks[-1] >= _GROWN * max(peaks[0], 1e-30):
        first, last = facts.run_up[0], facts.run_up[-1]
        yield Cause(
            "exploding",
            f"its largest magnitude grew from {first[1]:.4g} in step {first[0]} to {last[1]:.4g} in step {last[0]}",
        )


def _nothing_else(facts: Facts) -> Cause:
    if facts.seen.direction == BACKWARD:
        return Cause(
            "backward",
            f"the gradient that came in is finite, and so is all of the forward pass: the backward of {facts.layer}, or"
            f" of code between {facts.seen.brick.layer} and it",
        )
    with_parameters = " and parameters" if facts.parameters else ""
    return Cause("operation", f"its inputs{with_parameters} are finite: what it computes makes it")


def _amount(stats: TensorStats) -> str:
    amounts = [f"{stats.nan_count} NaN"] if stats.nan_count else []
    if stats.inf_count:
        amounts.append(f"{stats.inf_count} Inf")
    return " and ".join(amounts)
