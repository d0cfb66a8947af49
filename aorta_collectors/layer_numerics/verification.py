"""Is the evidence of layer_numerics there? Summaries and records against what was asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from aorta_collectors.api import Artifacts, Expected, Verdict, Verification
from aorta_collectors.layer_numerics.honoured import check_configuration, check_follows
from aorta_collectors.layer_numerics.reading import (
    Fault,
    Process,
    check_forks,
    check_records,
    is_stock,
    read_processes,
)

# By its exit status the program says that all is well; what the last step left has been written either way.
_IN_ORDER = ("exit", "os._exit 0")


def verify(artifacts: Artifacts, expected: Expected) -> Verification:
    processes: list[Process] = []
    try:
        processes = read_processes(artifacts, expected)
        for process in processes:
            check_configuration(process, expected)
        attached = _attached(processes, expected)
        followed = {process.stem: check_records(artifacts, process) for process in attached}
        for process in attached:
            _check_completeness(process)
            check_follows(process, expected, followed[process.stem])
        check_forks(artifacts, expected)
        _check_ranks(attached, expected)
    except Fault as fault:
        return Verification(fault.verdict, fault.reason, {"processes": [process.state() for process in processes]})
    steps = max(process.steps for process in attached)
    modules = max(int(process.summary["watched_count"]) for process in attached)
    ranks = sorted({process.rank for process in attached})
    reason = f"{modules} module(s) over {steps} step(s), {len(ranks)} rank(s)"
    never = sorted({name for process in attached for name in process.summary.get("unobserved_names", ())})
    reason += "".join(f"; {note}" for note in _notes(attached))
    if never:
        reason += f"; never called: {_some(never)}"
    warnings = [warning for process in attached for warning in process.summary.get("warnings", ())]
    if warnings:
        reason += f"; {len(set(warnings))} warning(s): {warnings[0]}"
    return Verification(Verdict.CAPTURED, reason, {"processes": [process.state() for process in processes]})


def _notes(attached: list[Process]) -> Iterator[str]:
    """What a reader of "captured" should know of how much that is."""
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


def _attached(processes: list[Process], expected: Expected) -> list[Process]:
    """The processes that observed a model. A helper that only imported torch is none."""
    attached = [process for process in processes if process.attached]
    if not attached:
        summary = max(processes, key=lambda process: int(process.summary.get("modules_built", 0))).summary
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
        raise Fault(Verdict.UNATTACHED, why)
    for process in attached:
        if process.steps == 0:
            modules = process.summary["watched_count"]
            why = f"hooks stood on {modules} module(s) of rank {process.rank}, but the model was never called"
            raise Fault(Verdict.UNATTACHED, why)
        if not process.is_behind and process.summary.get("tensors_observed") == 0:
            why = f"rank {process.rank} ran {process.steps} step(s), but no watched module passed a readable tensor"
            why += _why_unseen(process.summary)
            raise Fault(Verdict.UNATTACHED, why)
    return attached


def _check_completeness(process: Process) -> None:
    summary = process.summary
    if summary.get("write_error"):
        raise Fault(Verdict.INCOMPLETE, f"rank {process.rank} could not write on: {summary['write_error']}")
    if process.running and not process.killed_by:
        raise Fault(Verdict.INCOMPLETE, f"rank {process.rank} died in step {process.steps}; evidence ends there")
    if summary.get("hook_errors"):
        raise Fault(
            Verdict.INCOMPLETE,
            f"rank {process.rank}: {summary['hook_errors']} tensor(s) could not be observed: "
            f"{summary.get('first_hook_error')}",
        )
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
    if summary.get("dump_tensor") and summary["first_bad"] is not None and not summary.get("dump_tensor_dumped", True):
        raise Fault(Verdict.INCOMPLETE, f"rank {process.rank}: the bad tensor that dump_tensor asks for was not saved")
    # A program that stops over a NaN it has just shown us, or is stopped, has been captured; anything else ended it
    # before it had run its course.
    in_order = process.ended_by in _IN_ORDER and summary.get("status") != "ended"
    if not in_order and summary["first_bad"] is None and summary.get("origin") is None:
        raise Fault(
            Verdict.INCOMPLETE,
            f"rank {process.rank} ended in step {process.steps} with {process.ended_by}, before anything bad was seen",
        )


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


def _check_ranks(attached: list[Process], expected: Expected) -> None:
    world_size = expected.world_size or max(int(process.summary.get("world_size", 1)) for process in attached)
    missing = sorted(set(range(world_size)) - {process.rank for process in attached})
    if missing:
        text = ", ".join(str(rank) for rank in missing)
        raise Fault(Verdict.INCOMPLETE, f"no evidence from rank(s) {text} of {world_size}")
