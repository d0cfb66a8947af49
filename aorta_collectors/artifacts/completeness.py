"""Is there something of every rank, up to the end of its process? What collectors decide alike."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from aorta_collectors.api import Artifacts, Expected, Verdict
from aorta_collectors.artifacts.cast import Cast
from aorta_collectors.artifacts.process import Fault, Process
from aorta_collectors.artifacts.words import ranks_of, some

P = TypeVar("P", bound=Process)


def check_superseded(cast: Cast[P]) -> None:
    """Raise Fault (incomplete) if models were observed by workers alone that others have taken the place of."""
    if cast.earlier and not cast.attached:
        raise Fault(
            Verdict.INCOMPLETE,
            f"the workers of restart {cast.last_attempt} called no model, and those before have been superseded",
        )


def why_no_model(built: object, expected: Expected) -> str:
    """Why nothing was observed, where no model was called.

    Args:
        built: What the program built of PyTorch; nothing, where it is false.
    """
    if built:
        return "the program built PyTorch modules but called none of them"
    why = "the program built no PyTorch model"
    if expected.route == "front-end":
        why += (
            " itself, nor did a Python process below it that could be observed; one started with -I, -E, -S, "
            "an emptied environment or a PYTHONPATH of its own cannot"
        )
    return why


def check_alive(process: Process) -> None:
    """Raise Fault (incomplete) if the process could not write on, or died so that nobody knows why."""
    if process.summary.get("write_error"):
        raise Fault(Verdict.INCOMPLETE, f"rank {process.rank} could not write on: {process.summary['write_error']}")
    if process.running and not process.killed_by:
        raise Fault(Verdict.INCOMPLETE, f"rank {process.rank} died in step {process.steps}; evidence ends there")


def check_end(process: P, cast: Cast[P]) -> None:
    """Raise Fault (incomplete) if something other than what it was to show ended the process before its course was run.

    A program that stops over a NaN it has just shown us, or is stopped, has been captured, and so have the ranks that
    end with it, which may not have met the NaN themselves.
    """
    if not (process.ended_in_order or process.bad_at is not None or cast.saw_bad_beside(process)):
        raise Fault(
            Verdict.INCOMPLETE,
            f"rank {process.rank} ended in step {process.steps} with {process.ended_by}, before anything bad was seen",
        )


def check_all_seen(process: Process) -> None:
    """Raise Fault (incomplete) where hooks failed: there was something to see, and it was not."""
    if process.summary["hook_errors"]:
        told = hook_errors(process.summary)
        raise Fault(Verdict.INCOMPLETE, f"rank {process.rank}, by step {process.steps}: {told}")


def hook_errors(summary: Mapping[str, Any]) -> str:
    """What a summary says of hooks that failed."""
    return f"{summary['hook_errors']} exception(s) in hooks, the first of them {summary.get('first_hook_error')}"


def check_idle(process: P, cast: Cast[P], check_all_seen: Callable[[P], None]) -> None:
    """The same of a rank that observed no model."""
    watched = "nothing of its model is watched" if process.summary.get("roots") else "it had called no model"
    if process.running and not process.killed_by:
        raise Fault(Verdict.INCOMPLETE, f"rank {process.rank} died; {watched}")
    check_all_seen(process)
    if not process.ended_in_order and not cast.saw_bad_beside(process):
        raise Fault(Verdict.INCOMPLETE, f"rank {process.rank} ended with {process.ended_by}; {watched}")


def check_each(cast: Cast[P], check_contents: Callable[[P], None]) -> None:
    """Of each process, as its part was: that it ended in order, that no hook failed, and what it has left.

    Args:
        check_contents: Called with those that observed a model.
    """
    for process in cast.by_fault():
        if process.attached:
            check_alive(process)
            check_all_seen(process)
            check_end(process, cast)
            check_contents(process)
        else:
            check_idle(process, cast, check_all_seen)
    for process in cast.helpers:
        check_all_seen(process)


def check_earlier(process: P, check: Callable[[P], object]) -> None:
    """What an attempt left that has been superseded is this trial's and readable, up to where the attempt ended."""
    try:
        check(process)
    except Fault as fault:
        if fault.verdict is not Verdict.INCOMPLETE:
            raise


def check_ranks(cast: Cast[P], expected: Expected) -> None:
    """Raise Fault (incomplete) if a rank left nothing."""
    # A workload that the host runs as one process may have started more ranks itself.
    world_size = max(expected.world_size or 0, cast.world_size)
    missing = cast.missing(world_size)
    if missing:
        text = some([str(rank) for rank in missing], 8)
        raise Fault(Verdict.INCOMPLETE, f"no evidence from rank(s) {text} of {world_size}")


def check_pairs(artifacts: Artifacts, processes: Sequence[Process], pattern: re.Pattern[str]) -> None:
    """Raise Fault (incomplete) if a file has no summary beside it: nothing is known of what its process saw.

    Args:
        pattern: Of the names of files that a process makes before its summary; the first group is the stem.
    """
    known = {process.stem for process in processes}
    found = ((name, pattern.match(name)) for name in sorted(artifacts.sizes()))
    for name, match in found:
        if match is not None and match.group(1) not in known:
            raise Fault(
                Verdict.INCOMPLETE,
                f"{name} has no summary beside it: its process died as it began, or could not write one, or the "
                "program removed it",
            )


def who_saw_nothing(cast: Cast[P]) -> Iterator[str]:
    """For the reason of what was captured: ranks without a model, and what the end of others has cost."""
    unwatched = [process for process in cast.idle if process.summary.get("roots")]
    if len(cast.idle) > len(unwatched):
        yield f"{ranks_of(process for process in cast.idle if process not in unwatched)} built or called no model"
    if unwatched:
        yield f"nothing of the model of {ranks_of(unwatched)} is watched"
    if cast.superseded:
        yield f"{cast.superseded} process(es) superseded by restart {cast.last_attempt}"
    cut_short = [process for process in cast.attached if process.running or process.summary.get("status") == "ended"]
    if cut_short:
        yield f"what the last step of {ranks_of(cut_short)} left is lost ({cut_short[0].ended_by})"
