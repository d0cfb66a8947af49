"""Is the evidence of memory there? Summaries and lines of each process against what was asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from aorta_collectors.api import Artifacts, Expected, Verdict, Verification
from aorta_collectors.artifacts.cast import Cast
from aorta_collectors.artifacts.completeness import (
    check_all_seen,
    check_each,
    check_earlier,
    check_pairs,
    check_ranks,
    check_superseded,
    hook_errors,
    who_saw_nothing,
    why_no_model,
)
from aorta_collectors.artifacts.configuration import check_configuration
from aorta_collectors.artifacts.notes import check_forks
from aorta_collectors.artifacts.process import Fault
from aorta_collectors.artifacts.words import named_by, ranks_of, some
from aorta_collectors.memory.config import Config
from aorta_collectors.memory.verify.contents import check_contents, never_came, never_taken
from aorta_collectors.memory.verify.reading import BESIDE, Process, dropped, read_lines, read_processes, written


def verify(artifacts: Artifacts, expected: Expected) -> Verification:
    cast: Cast[Process] = Cast([])
    config = Config.of(expected.options.values)
    try:
        processes = read_processes(artifacts, expected)
        cast = Cast(processes)
        for process in processes:
            check_configuration(process, config.describe())
        _check_attached(cast, expected)
        for process in cast.attached:
            check_all_seen(process)  # a hook that failed may have left a gap in the lines
        contents = {process.stem: read_lines(artifacts, process) for process in cast.attached}
        for process in cast.earlier:
            check_earlier(process, lambda process: read_lines(artifacts, process))
        check_each(cast, lambda process: check_contents(process, contents[process.stem], config))
        _check_asked(cast.attached, config, expected)
        check_forks(artifacts, expected)
        check_ranks(cast, expected)
        check_pairs(artifacts, processes, BESIDE)
    except Fault as fault:
        return Verification(fault.verdict, fault.reason, {"processes": cast.states()})
    return Verification(Verdict.CAPTURED, _captured(cast, config), {"processes": cast.states()})


def _check_attached(cast: Cast[Process], expected: Expected) -> None:
    """Raise Fault (unattached) if no process called a model. A helper that only imported torch need not."""
    check_superseded(cast)
    if not cast.attached:
        summary = max(cast.current, key=lambda process: int(process.summary.get("modules_built", 0))).summary
        why = why_no_model(summary.get("modules_built"), expected)
        own = sum(written(process.summary, "memory") for process in cast.current)
        if own:
            why += f"; there are only its own {own} point(s)"
        if summary["hook_errors"]:
            why += f". {hook_errors(summary)}"
        raise Fault(Verdict.UNATTACHED, why)
    for process in cast.attached:
        if not process.steps and not process.running:
            raise Fault(Verdict.UNATTACHED, f"the model of rank {process.rank} was never called")


def _check_asked(attached: Sequence[Process], config: Config, expected: Expected) -> None:
    """Raise Fault if something that a recipe names came on no rank: each may hold another part of a model.

    Of points that are asked for by default alone, what was captured says so.
    """
    for pattern in _of_all_ranks([process.summary.get("unmatched_scope", ()) for process in attached]):
        raise Fault(
            Verdict.MISAPPLIED,
            f"summary_{attached[0].stem}.json: scope: no module matches {pattern!r}; a pattern is held against a whole "
            "path below the model, such as layers.0.attn, and * stands for anything",
        )
    if config.scope and not any(int(process.summary.get("called_count", 0)) for process in attached):
        raise Fault(Verdict.INCOMPLETE, f"scope: no module that it names was seen to be called{_why_unseen(attached)}")
    if "points" in expected.options.values:
        for point in _of_all_ranks([list(never_came(process.summary, config)) for process in attached]):
            raise Fault(Verdict.INCOMPLETE, f"{point} never came: {_WHY_NOT.get(point, 'no model was called')}")
    for point in _of_all_ranks([list(never_taken(process.summary, config)) for process in attached]):
        seen = max(process.steps for process in attached)
        asked = ",".join(config.steps or ()) or "all"
        raise Fault(
            Verdict.INCOMPLETE, f"{point} came in no step that steps: {asked} asks for; there were {seen} step(s)"
        )


def _why_unseen(attached: Sequence[Process]) -> str:
    """The end of a sentence on what was not seen; empty where compiled code is not the reason."""
    opaque = named_by(attached, "opaque_names")
    return f", since torch.compile or TorchScript runs {some(opaque)}" if opaque else ""


_WHY_NOT = {
    "after_backward": "the program ran no backward pass",
    "after_step": "no optimizer of torch stepped",
}


def _of_all_ranks(found: Sequence[Sequence[str]]) -> Iterator[str]:
    yield from (word for word in found[0] if all(word in others for others in found))


def _captured(cast: Cast[Process], config: Config) -> str:
    steps = max(process.steps for process in cast.attached)
    points = sum(written(process.summary, "memory") for process in cast.attached)
    reason = f"{points} point(s) over {steps} step(s), {len({process.rank for process in cast.attached})} rank(s)"
    return reason + "".join(f"; {caveat}" for caveat in _caveats(cast, config))


def _caveats(cast: Cast[Process], config: Config) -> Iterator[str]:
    """What a reader of "captured" should know of how much that is; one part of a sentence each."""
    attached = cast.attached
    yield from who_saw_nothing(cast)
    for point in _of_all_ranks([list(never_came(process.summary, config)) for process in attached]):
        yield f"{point} never came: {_WHY_NOT.get(point, 'no model was called')}"
    for pattern in sorted({name for process in attached for name in process.summary.get("unmatched_scope", ())}):
        lacking = [process for process in attached if pattern in process.summary.get("unmatched_scope", ())]
        yield f"scope: no module matches {pattern!r} on {ranks_of(lacking)}"
    unseen = named_by(attached, "unseen_names")
    if unseen and config.scope:
        yield f"no call seen of {some(unseen)}{_why_unseen(attached)}"
    if config.stacks:
        unrecorded = {
            memory for process in attached for memory, how in process.summary["history"].items() if how == "state only"
        }
        if unrecorded:
            yield f"state only, without stacks, of {some(sorted(unrecorded))}"
    left_out = sum(int(process.summary.get("steps_left_out", 0)) for process in attached)
    if left_out:
        yield f"{left_out} step(s) not looked at, since the file was filling up"
    lost = sum(dropped(process.summary) for process in attached)
    if lost:
        yield f"{lost} point(s) dropped, since the file was full"
    warnings = [warning for process in attached for warning in process.summary["warnings"]]
    if warnings:
        yield f"{len(set(warnings))} warning(s): {warnings[0]}"
