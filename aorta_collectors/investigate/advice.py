"""What a run shows of those that follow: said after the first one, while it can still be put right."""

from __future__ import annotations

from collections.abc import Iterator

from aorta_collectors.investigate.files import Investigation, Run
from aorta_collectors.investigate.report.numbers import too_few_steps
from aorta_collectors.investigate.report.subjects import subjects_of


class Advice:
    """Told of each run that has ended; each thing is said once."""

    def __init__(self, investigation: Investigation) -> None:
        self._investigation = investigation
        self._said: set[str] = set()

    def after(self, run: Run) -> Iterator[str]:
        """Lines for a person who is watching."""
        yield from self._of_points(run)
        yield from self._of_steps(run)

    def _of_points(self, run: Run) -> Iterator[str]:
        metadata, missing = self._investigation.metadata, run.record["points_missing"]
        follow = [entry for entry in metadata["schedule"] if entry["number"] > run.number and entry["tool"]]
        # Of a program that did not come to its end, the point may lie behind that.
        if missing and follow and not run.ended_early and "points" not in self._said:
            self._said.add("points")
            yield (
                f"{len(follow)} more runs with the tool are to have {', '.join(missing)}, and fail likewise where the "
                "program does not come by there. Ctrl-C stops; a new investigation can name other points"
            )

    def _of_steps(self, run: Run) -> Iterator[str]:
        metadata = self._investigation.metadata
        if metadata["kind"] == "timing" and "steps" not in self._said:
            for _, told in too_few_steps(subjects_of(self._investigation, [run])):
                self._said.add("steps")
                yield f"{told}. Let the program take more, and declare that anew"
