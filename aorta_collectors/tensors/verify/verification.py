"""Is the evidence of tensors there? Summary, lines and values of each process against what was asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from aorta_collectors.api import Artifacts, Expected, Verdict, Verification
from aorta_collectors.artifacts.cast import Cast
from aorta_collectors.artifacts.completeness import (
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
from aorta_collectors.artifacts.words import named_by, some
from aorta_collectors.tensors.config import Config
from aorta_collectors.tensors.names import NOT_WRITTEN
from aorta_collectors.tensors.verify.asked import check_points, check_scope, check_steps, partly_asked
from aorta_collectors.tensors.verify.reading import BESIDE, Contents, Process, read_lines, read_processes
from aorta_collectors.tensors.verify.values import check_values

# Tensors like these hold nothing that could be read.
_NOTHING_TO_READ = frozenset(("meta", "uninitialized"))


def verify(artifacts: Artifacts, expected: Expected) -> Verification:
    cast: Cast[Process] = Cast([])
    config = Config.of(expected.options.values)

    def left_whole(process: Process) -> None:
        _check_values_written(process, contents[process.stem])
        check_points(process, config, are_given="points" in expected.options.values)

    try:
        processes = read_processes(artifacts, expected)
        cast = Cast(processes)
        for process in processes:
            check_configuration(process, config.describe())
        _check_attached(cast, expected)
        contents = {process.stem: read_lines(artifacts, process) for process in cast.attached}
        for process in cast.earlier:
            check_earlier(process, lambda process: read_lines(artifacts, process))
        unread = [name for each in contents.values() for name in check_values(artifacts, each.values)]
        check_each(cast, left_whole)
        check_scope(cast.attached)
        check_steps(cast.attached, config)
        check_forks(artifacts, expected)
        check_ranks(cast, expected)
        check_pairs(artifacts, processes, BESIDE)
    except Fault as fault:
        return Verification(fault.verdict, fault.reason, {"processes": cast.states()})
    told = [_captured(cast), *partly_asked(cast.attached, config), *_caveats(cast, contents, unread)]
    return Verification(Verdict.CAPTURED, "; ".join(told), {"processes": cast.states()})


def _check_attached(cast: Cast[Process], expected: Expected) -> None:
    """Raise Fault (unattached) if no process called a model or observed a tensor of its own."""
    check_superseded(cast)
    if cast.attached:
        return
    summary = max(cast.current, key=lambda process: int(process.summary.get("modules_built", 0))).summary
    if summary["roots"]:
        why = f"no module of {some(summary['roots'])} is in scope, or was called so that it could be seen"
    elif summary.get("opaque_names"):
        why = f"torch.compile or TorchScript runs {some(summary['opaque_names'])}, and what they run is not seen"
    else:
        why = why_no_model(summary.get("modules_built"), expected)
    if summary["hook_errors"]:
        why += f". {hook_errors(summary)}"
    raise Fault(Verdict.UNATTACHED, why)


def _check_values_written(process: Process, contents: Contents) -> None:
    """Raise Fault (incomplete) where values could not be written. There may have been room for lines."""
    lost = int(process.summary["values"]["tensors_lost"])
    if lost:
        why = next((reason for reason in contents.left_out if reason.startswith(NOT_WRITTEN)), NOT_WRITTEN)
        raise Fault(Verdict.INCOMPLETE, f"rank {process.rank}: values of {lost} tensor(s) are {why}")


def _captured(cast: Cast[Process]) -> str:
    lines = sum(int(process.summary["lines_written"]) for process in cast.attached)
    steps = max(process.steps for process in cast.attached)
    points = [point for process in cast.attached for point, count in process.summary["points"].items() if count]
    ranks = {process.rank for process in cast.attached}
    return f"{lines} tensor(s) at {', '.join(dict.fromkeys(points))} over {steps} step(s), {len(ranks)} rank(s)"


def _caveats(cast: Cast[Process], contents: Mapping[str, Contents], unread: Sequence[str]) -> Iterator[str]:
    """What a reader of "captured" should know of how much that is."""
    attached = cast.attached
    yield from who_saw_nothing(cast)
    opaque = named_by(attached, "opaque_names")
    if opaque:
        yield f"not seen, since torch.compile or TorchScript runs them: {some(opaque)}"
    dropped = sum(int(process.summary["lines_dropped"]) for process in attached)
    if dropped:
        yield f"{dropped} tensor(s) came by when there was no room for further lines"
    for reason, count in _added(each.left_out for each in contents.values()).items():
        yield f"values of {count} tensor(s) not kept ({reason})"
    for reason, count in _added(each.unread for each in contents.values()).items():
        if reason not in _NOTHING_TO_READ:
            yield f"{count} tensor(s) without a digest ({reason})"
    for reason, count in _added(process.summary["tensors_passed_over"] for process in attached).items():
        yield f"{count} tensor(s) passed over ({reason})"
    if unread:
        yield f"not looked into, since they are large: {some(unread)}"
    warnings = list(dict.fromkeys(warning for process in attached for warning in process.summary["warnings"]))
    if warnings:
        yield f"{len(warnings)} warning(s): {warnings[0]}"


def _added(counts: Iterator[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for each in counts:
        for reason, count in each.items():
            total[reason] = total.get(reason, 0) + int(count)
    return total
