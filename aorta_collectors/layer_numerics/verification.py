"""Is the evidence of layer_numerics there? Summaries and records against what was asked for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from aorta_collectors.api import Artifacts, Expected, Verdict, Verification
from aorta_collectors.layer_numerics.cast import Cast
from aorta_collectors.layer_numerics.honoured import check_configuration, check_follows, check_scopes, met_on_some
from aorta_collectors.layer_numerics.reading import (
    Fault,
    Process,
    check_forks,
    check_records,
    is_stock,
    read_processes,
)

_RECORDS = re.compile(r"layers_(rank\d+(?:_p\d+)?)\.jsonl$")
# By its exit status the program says that all is well, or another one goes on in its place. What the last step left has
# been written either way.
_IN_ORDER = re.compile(r"exit|os\._exit 0|os\.execve? .+")


def verify(artifacts: Artifacts, expected: Expected) -> Verification:
    cast = Cast([])
    try:
        processes = read_processes(artifacts, expected)
        cast = Cast(processes)
        for process in processes:
            check_configuration(process, expected)
        _check_attached(cast, expected)
        followed = {process.stem: check_records(artifacts, process) for process in cast.attached}
        for process in cast.earlier:
            _check_earlier(artifacts, process)
        for process in cast.by_fault():
            if process.attached:
                _check_completeness(process, cast)
            else:
                _check_idle(process, cast)
        for process in cast.helpers:
            _check_all_seen(process)
        check_scopes(cast.attached, expected)
        check_follows(cast.attached, expected, followed)
        check_forks(artifacts, expected)
        _check_ranks(cast, expected)
        _check_pairs(artifacts, processes, expected)
    except Fault as fault:
        return Verification(fault.verdict, fault.reason, {"processes": cast.states()})
    steps = max(process.steps for process in cast.attached)
    modules = max(int(process.summary["watched_count"]) for process in cast.attached)
    ranks = {process.rank for process in cast.attached}
    reason = f"{modules} module(s) over {steps} step(s), {len(ranks)} rank(s)"
    reason += "".join(f"; {note}" for note in _notes(cast))
    return Verification(Verdict.CAPTURED, reason, {"processes": cast.states()})


def _notes(cast: Cast) -> Iterator[str]:
    """What a reader of "captured" should know of how much that is."""
    attached = cast.attached
    unwatched = [process for process in cast.idle if process.summary.get("roots")]
    if len(cast.idle) > len(unwatched):
        yield f"{_ranks(process for process in cast.idle if process not in unwatched)} built or called no model"
    if unwatched:
        yield f"nothing of the model of {_ranks(unwatched)} is watched"
    if cast.superseded:
        yield f"{cast.superseded} process(es) superseded by restart {cast.last_attempt}"
    cut_short = [process for process in attached if process.running or process.summary.get("status") == "ended"]
    if cut_short:
        yield f"what the last step of {_ranks(cut_short)} left is lost ({cut_short[0].ended_by})"
    yield from met_on_some(attached)
    followed = sorted({name for process in attached for name in process.summary.get("track_attr", ())})
    if followed:
        stages = sum(int(process.summary["pipeline_checkpoints"]) for process in attached)
        forwards = sum(int(process.summary["forward_checkpoints"]) for process in attached)
        yield f"{_some(followed)} followed past {stages} stage(s) and into {forwards} forward(s)"
    roles = {role for process in attached for role in process.summary.get("observed_by_role", ())}
    asked = {channel for process in attached for channel in process.summary["channels"]}
    if any(process.summary.get("sparse") for process in attached):
        asked.add("sparse")
    if asked - roles and any("observed_by_role" in process.summary for process in attached):
        yield f"nothing was seen of: {', '.join(sorted(asked - roles))}"
    unread = sum(len(process.summary.get("skipped_params", ())) for process in attached)
    if unread:
        yield f"{unread} parameter(s) not read (skipped_params)"
    unscanned = sorted({name for process in attached for name in process.summary.get("origin_unscanned", ())})
    if unscanned:
        yield f"not looked at for the origin: {_some(unscanned)}"
    skipped = {reason for process in attached for reason in process.summary.get("tensors_skipped", ())}
    if skipped - {"empty", "meta"}:
        yield f"tensors not read: {', '.join(sorted(skipped - {'empty', 'meta'}))}"
    never = sorted({name for process in attached for name in process.summary.get("unobserved_names", ())})
    if never:
        yield f"never called: {_some(never)}"
    warnings = [warning for process in attached for warning in process.summary.get("warnings", ())]
    if warnings:
        yield f"{len(set(warnings))} warning(s): {warnings[0]}"


def _ranks(processes: Iterable[Process]) -> str:
    return f"rank(s) {_some([str(rank) for rank in sorted({process.rank for process in processes})], 8)}"


def _check_attached(cast: Cast, expected: Expected) -> None:
    """Raise Fault (unattached) if no process observed a model. A helper that only imported torch need not."""
    if not cast.attached:
        if cast.earlier:
            raise Fault(
                Verdict.INCOMPLETE,
                f"the workers of restart {cast.last_attempt} called no model, and those before have been superseded",
            )
        summary = max(cast.current, key=lambda process: int(process.summary.get("modules_built", 0))).summary
        if is_stock(expected):
            why = (
                "the stock logger watched nothing: it attaches to a torchrec DistributedModelParallel only "
                f"(types={summary.get('watch_types')}, names={summary.get('watch_names')}); frontend: native takes "
                "any model"
            )
        elif summary.get("roots"):
            why = (
                f"the watch scope matched no module of {', '.join(summary['roots'])} "
                f"(types={summary.get('watch_types')}, names={summary.get('watch_names')}); names are substrings of "
                "module paths, types are class names"
            )
        elif summary.get("modules_built"):
            why = "the program built PyTorch modules but called none of them"
        else:
            why = "the program built no PyTorch model"
            if expected.route == "front-end":
                why += (
                    " itself, nor did a Python process below it that could be observed; one started with -I, -E, -S, "
                    "an emptied environment or a PYTHONPATH of its own cannot"
                )
        if summary.get("hook_errors"):
            why += f". {_hook_errors(summary)}"
        raise Fault(Verdict.UNATTACHED, why)
    for process in cast.attached:
        if process.steps == 0 and not process.running:
            modules = process.summary["watched_count"]
            why = f"hooks stood on {modules} module(s) of rank {process.rank}, but the model was never called"
            raise Fault(Verdict.UNATTACHED, why)
        if not process.is_behind and process.summary.get("tensors_observed") == 0:
            why = f"rank {process.rank} ran {process.steps} step(s), but no watched module passed a readable tensor"
            why += _why_unseen(process.summary)
            raise Fault(Verdict.UNATTACHED, why)


def _check_earlier(artifacts: Artifacts, process: Process) -> None:
    """What an attempt left that has been superseded is this trial's and readable, up to where the attempt ended."""
    try:
        check_records(artifacts, process)
    except Fault as fault:
        if fault.verdict is not Verdict.INCOMPLETE:
            raise


def _check_idle(process: Process, cast: Cast) -> None:
    watched = "nothing of its model is watched" if process.summary.get("roots") else "it had called no model"
    if process.running and not process.killed_by:
        raise Fault(Verdict.INCOMPLETE, f"rank {process.rank} died; {watched}")
    _check_all_seen(process)
    if not _ended_in_order(process) and not cast.saw_bad_beside(process):
        raise Fault(Verdict.INCOMPLETE, f"rank {process.rank} ended with {process.ended_by}; {watched}")


def _check_completeness(process: Process, cast: Cast) -> None:
    summary = process.summary
    if summary.get("write_error"):
        raise Fault(Verdict.INCOMPLETE, f"rank {process.rank} could not write on: {summary['write_error']}")
    if process.running and not process.killed_by:
        raise Fault(Verdict.INCOMPLETE, f"rank {process.rank} died in step {process.steps}; evidence ends there")
    _check_all_seen(process)
    if summary.get("dump_tensor") and summary["first_bad"] is not None and not summary.get("dump_tensor_dumped", True):
        raise Fault(Verdict.INCOMPLETE, f"rank {process.rank}: the bad tensor that dump_tensor asks for was not saved")
    # A program that stops over a NaN it has just shown us, or is stopped, has been captured, and so have the ranks that
    # end with it, which may not have met the NaN themselves; anything else ended it before it had run its course.
    saw_bad = summary["first_bad"] is not None or summary.get("origin") is not None
    if not (_ended_in_order(process) or saw_bad or cast.saw_bad_beside(process)):
        raise Fault(
            Verdict.INCOMPLETE,
            f"rank {process.rank} ended in step {process.steps} with {process.ended_by}, before anything bad was seen",
        )


def _check_all_seen(process: Process) -> None:
    """Raise Fault (incomplete) where there was something to see, and it was not."""
    summary = process.summary
    if summary.get("hook_errors"):
        raise Fault(Verdict.INCOMPLETE, f"rank {process.rank}: {_hook_errors(summary)}")
    for reason, skipped in summary.get("tensors_skipped", {}).items():
        # Elsewhere there was nothing to read, or not yet; here there was, and nobody has looked at it.
        if reason == "functorch" or reason.startswith(("unreadable", "beyond")):
            raise Fault(
                Verdict.INCOMPLETE,
                f"rank {process.rank}: {skipped['count']} tensor(s) of {_some(skipped['layers'])} could not be read: "
                f"{reason}",
            )
    if summary.get("opaque_names"):
        raise Fault(Verdict.INCOMPLETE, f"rank {process.rank} has layers that were not observed{_why_unseen(summary)}")


def _hook_errors(summary: Mapping[str, Any]) -> str:
    return f"{summary['hook_errors']} tensor(s) could not be observed: {summary.get('first_hook_error')}"


def _ended_in_order(process: Process) -> bool:
    return bool(_IN_ORDER.fullmatch(process.ended_by)) and process.summary.get("status") != "ended"


def _why_unseen(summary: Mapping[str, Any]) -> str:
    names = summary.get("opaque_names")
    if not names:
        return ""
    return (
        f": torch.compile or TorchScript runs {_some(names)}, and what they run is not seen. Run the cell without them "
        "(TORCH_COMPILE_DISABLE=1, PYTORCH_JIT=0), or watch other layers"
    )


def _some(names: Sequence[str], most: int = 3) -> str:
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown


def _check_pairs(artifacts: Artifacts, processes: Sequence[Process], expected: Expected) -> None:
    """A process makes its records' file first. Without a summary beside it, nothing is known of what it saw."""
    if is_stock(expected):
        return
    alone = {match.group(1) for match in map(_RECORDS.match, artifacts.sizes()) if match is not None}
    for stem in sorted(alone - {process.stem for process in processes}):
        raise Fault(
            Verdict.INCOMPLETE,
            f"layers_{stem}.jsonl has no summary beside it: its process died as it began, or could not write one, or "
            "the program removed it",
        )


def _check_ranks(cast: Cast, expected: Expected) -> None:
    # A workload that the host runs as one process may have started more ranks itself.
    world_size = max(expected.world_size or 0, cast.world_size)
    missing = cast.missing(world_size)
    if missing:
        text = _some([str(rank) for rank in missing], 8)
        raise Fault(Verdict.INCOMPLETE, f"no evidence from rank(s) {text} of {world_size}")
