"""Is the evidence of numerics there? Summaries and lines of each process against what was asked for."""

from __future__ import annotations

from aorta_collectors.api import Artifacts, Expected, Verdict, Verification
from aorta_collectors.artifacts.cast import Cast
from aorta_collectors.artifacts.completeness import (
    check_each,
    check_earlier,
    check_pairs,
    check_ranks,
    check_superseded,
    hook_errors,
    why_no_model,
)
from aorta_collectors.artifacts.configuration import check_configuration
from aorta_collectors.artifacts.notes import check_forks
from aorta_collectors.artifacts.process import Fault
from aorta_collectors.artifacts.words import some
from aorta_collectors.numerics.config import Config
from aorta_collectors.numerics.verify.caveats import caveats, why_unseen
from aorta_collectors.numerics.verify.contents import check_contents
from aorta_collectors.numerics.verify.reading import BESIDE, Process, called, read_lines, read_processes


def verify(artifacts: Artifacts, expected: Expected) -> Verification:
    cast: Cast[Process] = Cast([])
    config = Config.of(expected.options.values)
    try:
        processes = read_processes(artifacts, expected)
        cast = Cast(processes)
        for process in processes:
            check_configuration(process, config.describe())
        _check_attached(cast, expected)
        contents = {process.stem: read_lines(artifacts, process, config) for process in cast.attached}
        for process in cast.earlier:
            check_earlier(process, lambda process: read_lines(artifacts, process, config))
        check_each(cast, lambda process: check_contents(artifacts, process, contents[process.stem], config))
        _check_words(cast)
        check_forks(artifacts, expected)
        check_ranks(cast, expected)
        check_pairs(artifacts, processes, BESIDE)
    except Fault as fault:
        return Verification(fault.verdict, fault.reason, {"processes": cast.states()})
    return Verification(Verdict.CAPTURED, _captured(cast, config), {"processes": cast.states()})


def _captured(cast: Cast[Process], config: Config) -> str:
    steps = max(process.steps for process in cast.attached)
    modules = max(called(process.summary) for process in cast.attached)
    ranks = {process.rank for process in cast.attached}
    reason = f"{modules} module(s) over {steps} step(s), {len(ranks)} rank(s)"
    return reason + "".join(f"; {caveat}" for caveat in caveats(cast, config))


def _check_attached(cast: Cast[Process], expected: Expected) -> None:
    """Raise Fault (unattached) if no process called a model. A helper that only imported torch need not."""
    check_superseded(cast)
    if not cast.attached:
        summary = max(cast.current, key=lambda process: int(process.summary.get("modules_built", 0))).summary
        if summary["roots"]:
            why = f"no module of {some(summary['roots'])} was called so that it could be seen{why_unseen(summary)}"
        elif summary.get("opaque_names"):
            why = f"no call of a model was seen{why_unseen(summary)}"
        else:
            why = why_no_model(summary.get("modules_built"), expected)
        if summary["hook_errors"]:
            why += f". {hook_errors(summary)}"
        raise Fault(Verdict.UNATTACHED, why)
    for process in cast.attached:
        summary = process.summary
        if process.running or (process.steps and called(summary)):
            continue
        why = f"hooks stood on {summary['watched_count']} module(s) of rank {process.rank}, but "
        why += "the model was never called" if not process.steps else "none of them was seen to be called"
        raise Fault(Verdict.UNATTACHED, why + why_unseen(summary))


def _check_words(cast: Cast[Process]) -> None:
    """Raise Fault (misapplied) if a word of `steps` matched nothing on any rank: each may hold another part of a model.

    One that some have not met is told beside what was captured.
    """
    unmatched = [process.summary.get("unmatched_steps", ()) for process in cast.attached]
    for word in unmatched[0]:
        if all(word in others for others in unmatched):
            raise Fault(
                Verdict.MISAPPLIED,
                f"summary_{cast.attached[0].stem}.json: steps: nothing that ran matches {word!r}; a word is a named "
                "step, such as sample, or a part of a module's path or class",
            )
