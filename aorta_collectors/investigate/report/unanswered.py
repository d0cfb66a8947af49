"""Why a report has no conclusion about its question, so that silence is not taken for an answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from aorta_collectors.investigate.answering import unserved
from aorta_collectors.investigate.report.conclusion import Conclusion, counted
from aorta_collectors.investigate.report.subjects import Subject


def unanswered(
    metadata: Mapping[str, Any], subjects: Sequence[Subject], not_begun: int, answers: Sequence[Conclusion]
) -> str:
    """One sentence; empty where there is a conclusion about what was asked.

    Args:
        not_begun: Runs of the schedule of which there is nothing.
        answers: Conclusions about what was asked.
    """
    if answers:
        return ""
    return f"No conclusion about the question could be drawn: {_why(metadata, subjects, not_begun)}."


def _why(metadata: Mapping[str, Any], subjects: Sequence[Subject], not_begun: int) -> str:
    kind, is_fresh = metadata["kind"], metadata["mode"] == "fresh"
    if kind == "timing" and not is_fresh:
        return "how long something took cannot be told from artifacts that were there before"
    collectors = dict.fromkeys(name for subject in subjects for name in subject.collectors)
    why = unserved(kind, metadata["collect"] if is_fresh else collectors)
    if why:
        return why
    if len(metadata["variants"]) == 1 and kind in ("values", "timing"):
        alone = "there is no candidate, and the baseline is compared with nothing"
        again = metadata["design"]["repetitions"] > 1 and kind == "values"
        return f"{alone}; whether it repeats itself stands under Reproduction Status" if again else alone
    if not_begun:
        return f"{counted(not_begun, 'run')} not begun"
    if not subjects:
        return "no run has left evidence; Run Matrix and Tool Gaps say why"
    return "what the runs left does not suffice; Run Matrix and Tool Gaps say what is missing"
