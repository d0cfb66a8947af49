"""Is the evidence of layer_numerics there? Summaries and records against what was asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from aorta_collectors.api import Artifacts, Expected, Verdict, Verification
from aorta_collectors.layer_numerics.config import Config
from aorta_collectors.layer_numerics.reading import (
    SUMMARY,
    Fault,
    Process,
    check_forks,
    check_records,
    is_stock,
    read_processes,
)


def verify(artifacts: Artifacts, expected: Expected) -> Verification:
    processes: list[Process] = []
    try:
        processes = read_processes(artifacts, expected)
        for process in processes:
            _check_configuration(process, expected)
        attached = _attached(processes, expected)
        for process in attached:
            check_records(artifacts, process)
        for process in attached:
            _check_completeness(process)
        check_forks(artifacts, expected)
        _check_ranks(attached, expected)
    except Fault as fault:
        return Verification(fault.verdict, fault.reason, {"processes": [process.state() for process in processes]})
    steps = max(process.steps for process in attached)
    modules = max(int(process.summary["watched_count"]) for process in attached)
    ranks = sorted({process.rank for process in attached})
    reason = f"{modules} module(s) over {steps} step(s), {len(ranks)} rank(s)"
    never = sorted({name for process in attached for name in process.summary.get("unobserved_names", ())})
    if never:
        reason += f"; never called: {_some(never)}"
    return Verification(Verdict.CAPTURED, reason, {"processes": [process.state() for process in processes]})


def summarize(artifacts: Artifacts) -> Mapping[str, float | int | str]:
    """Metrics for the matrix: counts over all ranks, and the earliest bad record of any of them."""
    summaries = [orjson.loads(artifacts.read(name)) for name in artifacts.sizes() if SUMMARY.match(name)]
    metrics: dict[str, float | int | str] = {
        "layer_numerics_records": sum(summary["records_written"] for summary in summaries),
        "layer_numerics_modules": max(summary["watched_count"] for summary in summaries),
        "layer_numerics_steps": max(summary["steps_seen"] for summary in summaries),
        "layer_numerics_ranks": len({summary["rank"] for summary in summaries if summary["watched_count"]}),
    }
    bad = [(summary["first_bad"], summary["rank"]) for summary in summaries if summary["first_bad"] is not None]
    if bad:
        first, rank = min(bad, key=lambda entry: (entry[0]["step"], entry[0]["matmul_calls_so_far"], entry[1]))
        metrics["layer_numerics_first_bad_step"] = first["step"]
        metrics["layer_numerics_first_bad_rank"] = rank
        metrics["layer_numerics_first_bad_layer"] = first["layer"]
        metrics["layer_numerics_first_bad_direction"] = first["direction"]
        metrics["layer_numerics_first_bad_kind"] = first["kind"]
    lost = [(summary["first_nonfinite"], summary["rank"]) for summary in summaries if summary.get("first_nonfinite")]
    if lost:
        first, rank = min(lost, key=lambda entry: (entry[0]["step"], entry[0]["matmul_calls_so_far"], entry[1]))
        metrics["layer_numerics_first_nonfinite_step"] = first["step"]
        metrics["layer_numerics_first_nonfinite_layer"] = first["layer"]
        metrics["layer_numerics_first_nonfinite_kind"] = first["kind"]
    return metrics


def _check_configuration(process: Process, expected: Expected) -> None:
    summary = process.summary
    where = f"summary_{process.stem}.json"
    if summary.get("spec_error"):
        raise Fault(Verdict.MISAPPLIED, f"{where}: the spec was not applied: {summary['spec_error']}")
    raw = dict(expected.options.raw)
    if is_stock(expected):
        if ("NANLOG_SPEC" in raw or "NANLOG_SPEC_FILE" in raw) and not summary.get("spec_applied"):
            raise Fault(Verdict.MISAPPLIED, f"{where}: the spec was not applied")
        return
    if summary["watched_count"] and summary.get("unmatched_groups"):
        index = summary["unmatched_groups"][0]
        group = summary.get("config", {}).get("groups", [])[index : index + 1]
        raise Fault(Verdict.MISAPPLIED, f"{where}: watch[{index}] matches no module: {group[0] if group else ''}")
    if summary.get("spec_present") != ("NANLOG_SPEC" in raw or "NANLOG_SPEC_FILE" in raw):
        raise Fault(
            Verdict.MISAPPLIED, f"{where}: spec_source is {summary.get('spec_source')}, which was not asked for"
        )
    if "NANLOG_SPEC_FILE" in raw:
        return  # the file may be gone by now; spec_applied and the schema have been checked
    asked = Config.from_environment(raw).describe()
    got = summary.get("config")
    if got != asked:
        keys = [key for key in asked if not isinstance(got, Mapping) or got.get(key) != asked[key]]
        found = got.get(keys[0]) if isinstance(got, Mapping) and keys else got
        wanted = asked[keys[0]] if keys else asked
        name = keys[0] if keys else "config"
        raise Fault(Verdict.MISAPPLIED, f"{where}: {name} in force is {found}, asked for {wanted}")


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
                why += " itself; processes that it starts (multiprocessing, subprocess) are not observed yet"
        raise Fault(Verdict.UNATTACHED, why)
    for process in attached:
        if process.steps == 0:
            modules = process.summary["watched_count"]
            why = f"hooks stood on {modules} module(s) of rank {process.rank}, but the model was never called"
            raise Fault(Verdict.UNATTACHED, why)
        if not process.running and process.summary.get("tensors_observed") == 0:
            why = f"rank {process.rank} ran {process.steps} step(s), but no watched module passed a readable tensor"
            why += _why_unseen(process.summary)
            raise Fault(Verdict.UNATTACHED, why)
    return attached


def _check_completeness(process: Process) -> None:
    summary = process.summary
    if summary.get("write_error"):
        raise Fault(Verdict.INCOMPLETE, f"rank {process.rank} could not write on: {summary['write_error']}")
    if process.running:
        raise Fault(Verdict.INCOMPLETE, f"rank {process.rank} died in step {process.steps}; evidence ends there")
    if summary.get("hook_errors"):
        raise Fault(
            Verdict.INCOMPLETE,
            f"rank {process.rank}: {summary['hook_errors']} tensor(s) could not be observed: "
            f"{summary.get('first_hook_error')}",
        )
    if summary.get("opaque_names"):
        raise Fault(Verdict.INCOMPLETE, f"rank {process.rank} has layers that were not observed{_why_unseen(summary)}")
    ended_by = summary.get("ended_by") or "exit"
    # A program that stops itself over a NaN it has just shown us has been captured; any other exception ended it
    # before it had run its course.
    if ended_by != "exit" and summary["first_bad"] is None:
        raise Fault(
            Verdict.INCOMPLETE,
            f"rank {process.rank} ended in step {process.steps} with {ended_by}, before anything bad was seen",
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
