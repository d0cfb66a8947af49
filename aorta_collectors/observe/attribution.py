"""Which code made a bad value: decided from the first bad observation of a step, before which everything was clean.

A module's output was made by that module; an input that no module gave out, by the code of the module around; a
gradient, by the one module whose own incoming gradient was still clean.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from aorta_collectors.observe.observation import Observation
from aorta_collectors.observe.step_trace import StepTrace
from aorta_collectors.observe.trace import Call, Token

LOSS = "(loss)"
BETWEEN = "(between roots)"
GRADIENTS = ("bwd", "sum", "grad")

_ParameterKey = tuple[str, str]


class Attribution(NamedTuple):
    """The answer.

    Attributes:
        stage: data, parameter, forward, loss, backward, optimizer or unknown.
        module: Path of the module, "(loss)" or "(between roots)" for code that is in none.
        reason: Why.
        call: Of that module, where it was in one.
    """

    stage: str
    module: str
    reason: str
    call: Call | None = None


class History(NamedTuple):
    """What has to be known of the steps before.

    Attributes:
        num_steps: Steps before this one.
        graded, updated: Parameters, as (layer, name), that got a gradient in the last of them, and that an optimizer
            updated.
    """

    num_steps: int = 0
    graded: frozenset[_ParameterKey] = frozenset()
    updated: frozenset[_ParameterKey] = frozenset()

    def after(self, trace: StepTrace) -> History:
        graded, updated = set(), set()
        for seen in trace.observations:
            key = (seen.site.layer, seen.site.param)
            if seen.site.direction in GRADIENTS and seen.site.param:
                graded.add(key)
            elif seen.site.direction == "update":
                updated.add(key)
        return History(self.num_steps + 1, frozenset(graded), frozenset(updated))


def attribute(trace: StepTrace, index: int, history: History, world_size: int) -> Attribution:
    """Say which code made what the observation shows."""
    seen = trace.observations[index]
    site, mark = seen.site, trace.mark_of(index)
    if site.role == "loss":
        return Attribution("loss", LOSS, "the modules gave out clean values, and backward() was called on a bad one")
    if site.direction == "update":
        return Attribution("optimizer", site.module_path, "clean before the optimizer's step, bad after it")
    if site.direction in ("param", "last"):
        return _parameter(seen, history if site.direction == "param" else history.after(trace))
    if site.direction == "sum":
        reason = "finite as backward computed it, bad once it was summed up with earlier ones, or changed by a hook"
        return Attribution("backward", site.module_path, reason)
    if site.direction == "grad":
        return _gradient_in_use(trace, index, world_size)
    if site.role == "operation":
        path = LOSS if mark.call is None or mark.call.criterion else site.module_path
        reason = f"anomaly detection is on, so each operation was looked at: {site.tensor_path} is the first to go bad"
        return Attribution("backward", path, reason, mark.call)
    if site.direction == "bwd":
        inside = trace.inside_backward
        if inside is not None and inside.module_path is not None:
            reason = f"compiled code; its backward pass run again, {inside.where} is the first to go bad"
            return Attribution("backward", inside.module_path, reason)
        return _gradient(trace, site.module_path, mark.token)
    if mark.call is None:
        return Attribution("unknown", site.module_path, "what it was called with has not been seen")
    return _forward(trace, index, mark.call)


def _forward(trace: StepTrace, index: int, call: Call) -> Attribution:
    seen = trace.observations[index]
    is_input = seen.site.role == "input"
    if call.criterion and not _is_between_models(trace, call):
        made = "a bad value that no module gave out" if is_input else "clean values and gave out a bad one"
        return Attribution("loss", LOSS, f"{call.module_path} was given {made}", call)
    if is_input:
        if call.parent is not None:
            reason = f"{call.layer} was called with a bad value that the code around it made of clean ones"
            return Attribution("forward", call.parent.module_path, reason, call.parent)
        if call.recompute:
            reason = "bad when activation checkpointing ran the module again"
            return Attribution("forward", _around(call.module_path), reason, call)
        if index in call.computed:
            reason = f"{call.module_path} was called with a bad value that code outside of all models computed"
            return Attribution("forward", BETWEEN, reason, call)
        return Attribution("data", call.module_path, "bad as it enters the model", call)
    if call.inside is not None:
        reason = f"compiled code; run again operation by operation, {call.inside.where} is the first to go bad"
        return Attribution("forward", call.inside.module_path or call.module_path, reason, call)
    return Attribution("forward", call.module_path, "its inputs and parameters were clean, its output is not", call)


def _parameter(seen: Observation, history: History) -> Attribution:
    """Of a parameter that is bad when a step begins, or after the last one; `history` ends right before."""
    path, key = seen.site.module_path, (seen.site.layer, seen.site.param)
    if key in history.graded and key not in history.updated:
        reason = "clean in the step before, and so was its gradient; bad after it, by no optimizer: updated by hand"
        return Attribution("optimizer", path, reason)
    when = "between two steps, by no optimizer" if history.num_steps else "before the first step"
    return Attribution("parameter", path, f"bad {when}")


def _is_between_models(trace: StepTrace, call: Call) -> bool:
    """Whether what looks like a loss computes what a model is called with afterwards.

    Such a model is given a tensor of the same shape and with the same range and counts.
    """
    while call.parent is not None:
        call = call.parent
    given_out: list[tuple[Any, ...]] = []
    for index, seen in enumerate(trace.observations):
        found = trace.mark_of(index).call
        if found is call and seen.site.role == "act":
            given_out.append(_looks(seen))
            continue
        is_given = given_out and found is not None and seen.site.role == "input" and _is_model(found)
        if is_given and _looks(seen) in given_out:
            return True
    return False


def _looks(seen: Observation) -> tuple[Any, ...]:
    return (seen.shape, seen.dtype, *seen.stats._replace(location=None))


def _is_model(call: Call) -> bool:
    return call.parent is None and not (call.criterion or call.runs_beside or call.recompute)


def _gradient(trace: StepTrace, module_path: str, token: Token | None) -> Attribution:
    """Of a gradient that backward has just computed."""
    if token is None:
        reason = "the gradient of its output was clean, that of its parameter is not"
        return Attribution("backward", module_path, reason)
    if token.consumers:
        call = max(token.consumers, key=lambda consumer: consumer.depth)
        path = LOSS if call.criterion and not _is_between_models(trace, call) else call.module_path
        return Attribution("backward", path, "the gradient of its output was clean, that of its input is not", call)
    # Used by code between modules: of the module around the outermost one that gave the tensor out.
    call = min(token.producers, key=lambda producer: producer.depth)
    reason = f"the gradient of what {call.layer} gives out was made bad by the code that uses it"
    if call.parent is not None:
        return Attribution("backward", call.parent.module_path, reason, call.parent)
    if call.recompute:
        return Attribution("backward", _around(call.module_path), reason, call)
    return Attribution("backward", LOSS, reason)


def _gradient_in_use(trace: StepTrace, index: int, world_size: int) -> Attribution:
    """Of a parameter's gradient that is bad when the optimizer begins, and was not when backward computed it."""
    site = trace.observations[index].site
    key = (site.layer, site.param)
    if not any(
        seen.site.direction == "bwd" and (seen.site.layer, seen.site.param) == key
        for seen in trace.observations[:index]
    ):
        reason = "the gradients of the modules' tensors were clean, this one is not"
        return Attribution("backward", site.module_path, reason)
    if world_size > 1:
        reason = "clean as this rank computed it: it came from another rank, or was made bad in between"
        return Attribution("unknown", site.module_path, reason)
    reason = "clean as backward computed it, bad when the optimizer began: changed in between"
    return Attribution("optimizer", site.module_path, reason)


def _around(module_path: str) -> str:
    return module_path.rpartition(".")[0] or "(root)"
