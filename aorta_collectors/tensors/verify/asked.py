"""Whether one process observed what was asked for: tensors at each point, of modules in scope, in the named steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from aorta_collectors.api import Verdict
from aorta_collectors.artifacts.process import Fault
from aorta_collectors.artifacts.words import some
from aorta_collectors.tensors.config import Config
from aorta_collectors.tensors.names import AFTER_BACKWARD, AFTER_STEP, USER
from aorta_collectors.tensors.verify.reading import Process
from aorta_collectors.torch_collector.selection import step_range


def check_points(process: Process, config: Config, *, are_given: bool) -> None:
    """Raise Fault (incomplete) where nothing was observed at a point.

    A program that has ended over a NaN which was observed need not have come to all of them. Where nobody named points,
    one without a model that has observed tensors itself need not have any, and one that only runs its model forward
    none after a backward pass or an optimizer.

    Args:
        are_given: Whether the points are other than by default.
    """
    if process.bad_at is not None and not process.ended_in_order:
        return
    if not are_given and has_no_model(process):
        return
    for point in config.points:
        if not process.at(point) and (are_given or not _never_came(process, point)):
            raise Fault(
                Verdict.INCOMPLETE,
                f"rank {process.rank}: no tensor was observed at {point}: {_why(process, config, point)}",
            )


def has_no_model(process: Process) -> bool:
    """Whether all that is there is what the program has observed itself."""
    return not process.summary["roots"] and process.at(USER) > 0


def _never_came(process: Process, point: str) -> str | None:
    """Why the whole run has not come to a point, in any step; None where it has, or nobody can tell."""
    if point == AFTER_BACKWARD and not process.summary["backward_passes"]:
        return "no backward pass ended"
    if point == AFTER_STEP and not process.summary.get("optimizer_steps"):
        return "no optimizer of torch.optim stepped"
    return None


def _why(process: Process, config: Config, point: str) -> str:
    summary = process.summary
    leave_out = f"leave {point} out of points, or run what has it"
    if not any(config.observes_step(step) for step in range(process.steps + 1)):
        return f"{process.steps} step(s) ran, none of which is among steps {', '.join(config.steps or ())}"
    never = _never_came(process, point)
    if never is not None:
        return f"{never}; {leave_out}"
    if summary.get("opaque_names"):
        return (
            f"torch.compile or TorchScript runs {some(summary['opaque_names'])}, and what they run is not seen; run "
            "without them (TORCH_COMPILE_DISABLE=1, PYTORCH_JIT=0)"
        )
    if not summary["watched_count"]:
        return "no module's calls were observed; name some in scope, or leave points to what the program has"
    what = "a gradient" if point == AFTER_BACKWARD else "a tensor"
    return f"no module in scope had {what} there in an observed step; widen scope or steps, or {leave_out}"


def check_scope(processes: Sequence[Process]) -> None:
    """Raise Fault (misapplied) if a pattern means no module on any rank: each may hold another part of a model."""
    unmatched = [process.summary["unmatched_scope"] for process in processes]
    for pattern in unmatched[0] if unmatched else ():
        if all(pattern in others for others in unmatched):
            raise Fault(
                Verdict.MISAPPLIED,
                f"summary_{processes[0].stem}.json: scope: no module is called {pattern!r}; a pattern is of a module's "
                "path below the model, such as layers.*.attn, and (root) is the model itself",
            )


def check_steps(processes: Sequence[Process], config: Config) -> None:
    """Raise Fault (incomplete) if a word of `steps` names none that ran on any rank."""
    most = max((process.steps for process in processes), default=0)
    for word in config.steps or ():
        if step_range(word)[0] > most:
            raise Fault(Verdict.INCOMPLETE, f"steps: {word} was asked for, but {most} step(s) ran; name steps that run")


def partly_asked(processes: Sequence[Process], config: Config) -> Iterator[str]:
    """For the reason of what was captured: what some ranks lack."""
    alone = sorted({process.rank for process in processes if has_no_model(process)})
    if alone:
        told = some([str(rank) for rank in alone], 8)
        yield f"rank(s) {told} called no model: only what the program observed itself is there"
    lacking: dict[str, list[str]] = {}
    for process in processes:
        for point in config.points:
            never = None if has_no_model(process) or process.at(point) else _never_came(process, point)
            if never is not None:
                lacking.setdefault(f"nothing at {point}: {never}", []).append(str(process.rank))
    yield from (f"{what} on rank(s) {some(sorted(set(ranks)), 8)}" for what, ranks in lacking.items())
    for pattern in dict.fromkeys(pattern for process in processes for pattern in process.summary["unmatched_scope"]):
        ranks = sorted({process.rank for process in processes if pattern in process.summary["unmatched_scope"]})
        yield f"scope: no module is called {pattern!r} on rank(s) {some([str(rank) for rank in ranks], 8)}"
