"""What is concluded of runs that failed: that they did, how often, and that what came after is not known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from aorta_collectors.analysis.captures import SOURCES
from aorta_collectors.investigate.files import RUN, STDERR, Run
from aorta_collectors.investigate.report.conclusion import Conclusion, Standing, counted
from aorta_collectors.investigate.report.subjects import Subject
from aorta_collectors.printable import printable
from aorta_collectors.report.wording import text

_MOST_NAMED = 4
_MOST_LETTERS = 1000


def conclude_failures(runs: Sequence[Run], variants: Sequence[str]) -> Iterator[Conclusion]:
    """One conclusion for each variant, with the tool and without, and each reason.

    Args:
        runs: The last attempt at each.
    """
    for variant in variants:
        for tool in (True, False):
            these = [run for run in runs if run.counts and _is(run, variant, tool)]
            failed = [run for run in these if run.state == "failed"]
            for reason in dict.fromkeys(run.record["reason"] for run in failed):
                alike = [run for run in failed if run.record["reason"] == reason]
                yield _of(variant, tool, alike, len(these), reason)


def conclude_ends(subjects: Sequence[Subject]) -> Iterator[Conclusion]:
    """The same of artifacts that were there before, as their manifests tell."""
    for subject in (subject for subject in subjects if subject.run is None):
        for ended_by, step in subject.ends.items():
            sentence = (
                f"The {subject.variant}'s program ended by {text(ended_by)}, in step {step}. What is said of it is of "
                "what it left until then; how it would have gone on is not known."
            )
            files = [
                path for source in SOURCES for path in subject.files_of(source) if path.name.startswith("summary_")
            ]
            yield Conclusion(sentence, Standing.OBSERVED, (), tuple(files))


def _is(run: Run, variant: str, tool: bool) -> bool:
    return (run.record["variant"], run.record["tool"]) == (variant, tool)


def _of(variant: str, tool: bool, failed: Sequence[Run], total: int, reason: str) -> Conclusion:
    how = "" if tool else " without the tool"
    names = ", ".join(run.directory.name for run in failed[:_MOST_NAMED])
    more = f" and {len(failed) - _MOST_NAMED} more" if len(failed) > _MOST_NAMED else ""
    if not failed[0].ended_early:
        left = "Its program came to its end; what is missing is evidence, and is told under Tool Gaps."
    elif tool:
        left = "What is said of it is of what it left until then; how it would have gone on is not known."
    else:
        left = "What the tool does to it is not known from there."
    sentence = (
        f"The {variant}{how} failed in {len(failed)} of {counted(total, 'repetition')} ({names}{more}): "
        f"{printable(reason, _MOST_LETTERS).rstrip('.')}. {left}"
    )
    files = [run.directory / name for run in failed for name in (RUN, STDERR)]
    return Conclusion(sentence, Standing.OBSERVED, (), tuple(files))
