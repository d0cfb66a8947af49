"""What a reader of "captured" should know of how much that is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from aorta_collectors.artifacts.cast import Cast
from aorta_collectors.artifacts.completeness import who_saw_nothing
from aorta_collectors.artifacts.words import named_by, ranks_of, some
from aorta_collectors.numerics.config import Config
from aorta_collectors.numerics.verify.reading import KINDS, Process, dropped

# Tensors of these kinds hold nothing that could be read.
_NOTHING_TO_READ = frozenset(("empty", "meta"))


def caveats(cast: Cast[Process], config: Config) -> Iterator[str]:
    """One part of a sentence each."""
    attached = cast.attached
    yield from who_saw_nothing(cast)
    stopped = next((process for process in attached if process.summary.get("stopped")), None)
    if stopped is not None:
        found = stopped.summary["stopped"]
        yield f"on_bad: stop ended rank {stopped.rank} in step {found['step']} at {found['layer']}"
    for word in named_by(attached, "unmatched_steps"):
        lacking = [process for process in attached if word in process.summary.get("unmatched_steps", ())]
        yield f"steps: nothing matches {word!r} on {ranks_of(lacking)}"
    opaque = named_by(attached, "opaque_names")
    if opaque:
        yield f"not seen, since torch.compile or TorchScript runs them: {some(opaque)}"
    yield from _of_files(attached)
    skipped = {reason for process in attached for reason in process.summary.get("tensors_skipped", ())}
    if skipped - _NOTHING_TO_READ:
        yield f"tensors not read: {some(sorted(skipped - _NOTHING_TO_READ))}"
    if config.profiles and any(process.summary.get("roofline") is None for process in attached):
        yield "no roofline was measured, so that neither efficiency nor bound of a brick is known"
    unavailable = list(dict.fromkeys(reason for process in attached for reason in _unavailable(process)))
    if unavailable:
        yield f"escalations had to do without: {some(unavailable)}"
    warnings = [warning for process in attached for warning in process.summary["warnings"]]
    if warnings:
        yield f"{len(set(warnings))} warning(s): {warnings[0]}"


def why_unseen(summary: Mapping[str, Any]) -> str:
    """The end of a sentence on what was not seen; empty where compiled code is not the reason."""
    names = summary.get("opaque_names")
    if not names:
        return ""
    return (
        f": torch.compile or TorchScript runs {some(names)}, and what they run is not seen. Run the cell without them "
        "(TORCH_COMPILE_DISABLE=1, PYTORCH_JIT=0)"
    )


def _of_files(attached: Sequence[Process]) -> Iterator[str]:
    """What was not written, or not sent on."""
    for kind in KINDS:
        lines = sum(dropped(process.summary, kind) for process in attached)
        if lines:
            yield f"{lines} line(s) of {kind} dropped, since the file was filling up"
    tensors = sum(_count(process, "payload", "tensors_dropped") for process in attached)
    if tensors:
        yield f"{tensors} tensor(s) not kept, since payload_max_bytes was reached"
    spans = sum(_count(process, "otlp", "dropped") for process in attached)
    if spans:
        errors = [otlp["error"] for process in attached if (otlp := process.summary.get("otlp")) and otlp.get("error")]
        yield f"{spans} span(s) not taken by otlp_endpoint" + (f" ({errors[0]})" if errors else "")


def _unavailable(process: Process) -> Sequence[str]:
    unavailable: Sequence[str] = process.summary.get("escalations", {}).get("unavailable", ())
    return unavailable


def _count(process: Process, field: str, name: str) -> int:
    return int((process.summary.get(field) or {}).get(name, 0))
