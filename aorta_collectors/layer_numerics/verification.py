"""Is the evidence of layer_numerics there? Summaries and records against what was asked for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from aorta_collectors.api import Artifacts, Expected, Verdict, Verification
from aorta_collectors.artifacts.cast import Cast
from aorta_collectors.artifacts.completeness import (
    check_alive,
    check_earlier,
    check_end,
    check_idle,
    check_pairs,
    check_ranks,
    check_superseded,
    who_saw_nothing,
    why_no_model,
)
from aorta_collectors.artifacts.notes import check_forks
from aorta_collectors.artifacts.process import Fault
from aorta_collectors.artifacts.words import some
from aorta_collectors.layer_numerics.honoured import check_configuration, check_follows, check_scopes, met_on_some
from aorta_collectors.layer_numerics.reading import Process, check_records, is_stock, read_processes

_RECORDS = re.compile(r"layers_(rank\d+(?:_p\d+)?)\.jsonl$")


def verify(artifacts: Artifacts, expected: Expected) -> Verification:
    cast: Cast[Process] = Cast([])
    try:
        processes = read_processes(artifacts, expected)
        cast = Cast(processes)
        for process in processes:
            check_configuration(process, expected)
        _check_attached(cast, expected)
        followed = {process.stem: check_records(artifacts, process) for process in cast.attached}
        for process in cast.earlier:
            check_earlier(process, lambda process: check_records(artifacts, process))
        for process in cast.by_fault():
            if process.attached:
                _check_completeness(process, cast)
            else:
                check_idle(process, cast, _check_all_seen)
        for process in cast.helpers:
            _check_all_seen(process)
        check_scopes(cast.attached, expected)
        check_follows(cast.attached, expected, followed)
        check_forks(artifacts, expected)
        check_ranks(cast, expected)
        if not is_stock(expected):
            check_pairs(artifacts, processes, _RECORDS)
    except Fault as fault:
        return Verification(fault.verdict, fault.reason, {"processes": cast.states()})
    steps = max(process.steps for process in cast.attached)
    modules = max(int(process.summary["watched_count"]) for process in cast.attached)
    ranks = {process.rank for process in cast.attached}
    reason = f"{modules} module(s) over {steps} step(s), {len(ranks)} rank(s)"
    reason += "".join(f"; {note}" for note in _notes(cast))
    return Verification(Verdict.CAPTURED, reason, {"processes": cast.states()})


def _notes(cast: Cast[Process]) -> Iterator[str]:
    """What a reader of "captured" should know of how much that is."""
    attached = cast.attached
    yield from who_saw_nothing(cast)
    yield from met_on_some(attached)
    followed = sorted({name for process in attached for name in process.summary.get("track_attr", ())})
    if followed:
        stages = sum(int(process.summary["pipeline_checkpoints"]) for process in attached)
        forwards = sum(int(process.summary["forward_checkpoints"]) for process in attached)
        yield f"{some(followed)} followed past {stages} stage(s) and into {forwards} forward(s)"
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
        yield f"not looked at for the origin: {some(unscanned)}"
    skipped = {reason for process in attached for reason in process.summary.get("tensors_skipped", ())}
    if skipped - {"empty", "meta"}:
        yield f"tensors not read: {', '.join(sorted(skipped - {'empty', 'meta'}))}"
    never = sorted({name for process in attached for name in process.summary.get("unobserved_names", ())})
    if never:
        yield f"never called: {some(never)}"
    warnings = [warning for process in attached for warning in process.summary.get("warnings", ())]
    if warnings:
        yield f"{len(set(warnings))} warning(s): {warnings[0]}"


def _check_attached(cast: Cast[Process], expected: Expected) -> None:
    """Raise Fault (unattached) if no process observed a model. A helper that only imported torch need not."""
    check_superseded(cast)
    if not cast.attached:
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
        else:
            why = why_no_model(summary.get("modules_built"), expected)
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


def _check_completeness(process: Process, cast: Cast[Process]) -> None:
    summary = process.summary
    check_alive(process)
    _check_all_seen(process)
    if summary.get("dump_tensor") and summary["first_bad"] is not None and not summary.get("dump_tensor_dumped", True):
        raise Fault(Verdict.INCOMPLETE, f"rank {process.rank}: the bad tensor that dump_tensor asks for was not saved")
    check_end(process, cast)


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
                f"rank {process.rank}: {skipped['count']} tensor(s) of {some(skipped['layers'])} could not be read: "
                f"{reason}",
            )
    if summary.get("opaque_names"):
        raise Fault(Verdict.INCOMPLETE, f"rank {process.rank} has layers that were not observed{_why_unseen(summary)}")


def _hook_errors(summary: Mapping[str, Any]) -> str:
    return f"{summary['hook_errors']} tensor(s) could not be observed: {summary.get('first_hook_error')}"


def _why_unseen(summary: Mapping[str, Any]) -> str:
    names = summary.get("opaque_names")
    if not names:
        return ""
    return (
        f": torch.compile or TorchScript runs {some(names)}, and what they run is not seen. Run the cell without them "
        "(TORCH_COMPILE_DISABLE=1, PYTORCH_JIT=0), or watch other layers"
    )
