"""An investigation's declared design in lines of text, as `new` prints it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from aorta_collectors.investigate.agreement import declared_criterion
from aorta_collectors.investigate.design import NOISY
from aorta_collectors.investigate.statistics import CONFIDENCE, LEAST, interval_ranks
from aorta_collectors.printable import printable

_ORDERS = {
    "pair": "the baseline first in each",
    "counterbalanced": "taking turns in coming first",
    "random": "in an order drawn from seed {seed}",
}


def design_lines(metadata: Mapping[str, Any], routes: Mapping[str, str], observed: Sequence[str]) -> list[str]:
    """One line for each thing declared, and one for each run.

    Args:
        routes: How collectors get into each variant.
        observed: Points at which they look.
    """
    lines = [f"question:   {metadata['question']}", f"criterion:  {metadata['criterion']}"]
    for variant in metadata["variants"]:
        lines.append(f"{variant['name'] + ':':<11} {variant_text(variant)}")
        lines.append(f"            observed by: {routes[variant['name']]}")
    collect = "; ".join(
        name + (f" ({', '.join(f'{key}={value}' for key, value in block.items())})" if block else "")
        for name, block in metadata["collect"].items()
    )
    lines.append(f"collect:    {collect}")
    if observed:
        lines.append(f"points:     {', '.join(observed)}{_required(metadata['points'], observed)}")
    criterion = declared_criterion(metadata)
    if criterion is not None:
        lines.append(f"agreement:  {criterion.describe()}")
    lines.append(f"design:     {design_text(metadata)}")
    if metadata["kind"] in NOISY:
        lines.append(f"intervals:  {interval_text(metadata['design']['repetitions'])}")
    lines.append(f"runs:       {len(metadata['schedule'])}, in this order")
    lines += [f"  {run['number']:3d}  {run_text(run)}" for run in metadata["schedule"]]
    return [printable(line) for line in lines]


def _required(points: Sequence[str], observed: Sequence[str]) -> str:
    if not points:
        return ", as far as a run comes by there"
    if len(points) == len(observed):
        return "; each run with the tool has to have them"
    return f", as far as a run comes by there; each run with the tool has to have {', '.join(points)}"


def interval_text(repetitions: int) -> str:
    """What so many repetitions allow to say of a median."""
    found = interval_ranks(repetitions)
    if found is None:
        return (
            f"none: one of {CONFIDENCE:.0%} of a median takes {LEAST} repetitions; of {repetitions} the report lists "
            "values"
        )
    return f"of medians, with {found[1]:.1%}; an exact one of {CONFIDENCE:.0%} or more takes {LEAST} repetitions"


def variant_text(variant: Mapping[str, Any]) -> str:
    """A variant as a shell would take it, or its cell."""
    shown = [f"{name}={shlex.quote(value)}" for name, value in variant["environment"].items()]
    if variant["command"] is not None:
        return " ".join((*shown, shlex.join(variant["command"])))
    return " ".join((*shown, f"cell {variant['cell']} of {variant['recipe']}"))


def design_text(metadata: Mapping[str, Any]) -> str:
    """The design in one sentence."""
    design = metadata["design"]
    text = f"{_count(design['repetitions'], 'repetition')}"
    if len(metadata["variants"]) > 1:
        # Of a single repetition there is no other in which the candidate would come first.
        in_turns = design["order"] == "counterbalanced" and design["repetitions"] > 1
        order = "pair" if design["order"] == "counterbalanced" and not in_turns else design["order"]
        text += f", {_ORDERS[order].format(seed=design['order_seed'])}"
    if metadata["seed"] is not None:
        last = metadata["seed"] + design["repetitions"] - 1
        text += f", seed {metadata['seed']}" + (f" to {last}" if last > metadata["seed"] else "")
    if design["warm_up"]:
        text += f", after {_count(design['warm_up'], 'warm-up run')} of each variant"
    if design["observer_effect"]:
        every = any(not run["tool"] and run["repetition"] > 1 for run in metadata["schedule"])
        text += "; also without the tool, " + ("in every repetition" if every else "once")
    else:
        text += "; the effect of the tool itself is not measured"
    return text


def run_text(run: Mapping[str, Any]) -> str:
    """A run of the schedule in words."""
    parts = [run["variant"], f"{'warm-up' if run['warm_up'] else 'repetition'} {run['repetition']}"]
    if run["seed"] is not None:
        parts.append(f"seed {run['seed']}")
    if not run["tool"]:
        parts.append("without the tool")
    return ", ".join(parts)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
