"""The recipe's `retain:` block: which level a trial's artifacts fall under, and which of them are small.

The host removes artifacts as the command ends, right after each collector's summary: what is to be kept must be said
by then. It takes a file for a small summary by its name, or by a list beside the artifacts.
"""

from __future__ import annotations

import fnmatch
import json
import logging
from collections.abc import Iterable
from typing import Any

from aorta.run.retention import RETENTION_MANIFEST_NAME

from aorta_collectors.errors import ArtifactError
from aorta_collectors.host.asked import Asked
from aorta_collectors.host.trial_place import TrialPlace

log = logging.getLogger("aorta.collectors")


class Retention:
    """What a trial's `retain:` block does to its artifacts.

    Args:
        extras: The trial's `_aorta_probe_extras`, which the host reads again when it removes artifacts; None in the
            workload flow, which has no retention.
    """

    def __init__(self, extras: dict[str, Any] | None) -> None:
        self._extras = extras if extras is not None else {}
        asked = self._extras.get("retain")
        self._levels: dict[str, str] = asked if isinstance(asked, dict) else {}

    @property
    def in_force(self) -> bool:
        return bool(self._levels)

    def prepare(self, place: TrialPlace, asked: Iterable[Asked]) -> None:
        """Before the host removes anything: list the files that are summaries."""
        if not self.in_force:
            return
        entries = [
            {"path": f"{one.collector.output_subdir}/{name}", "class": "summary" if _is_summary(one, name) else "heavy"}
            for one in asked
            if one.checked is not None
            for name in one.checked.files
        ]
        if not entries:
            return
        directory = place.stem
        try:
            with place.anchor.open(directory) as opened:
                opened.write(RETENTION_MANIFEST_NAME, json.dumps({"artifacts": entries}, indent=2).encode())
        except ArtifactError as error:
            log.warning("retain: summaries are removed with the rest, since they cannot be listed: %s", error)

    def treat_pass_as_error(self) -> None:
        """A pass without evidence becomes an error, and its artifacts are what shows why: they fall under on_error."""
        if self.in_force:
            self._extras["retain"] = {**self._levels, "on_pass": self._levels.get("on_error", "full")}

    def restore(self) -> None:
        """Have the trial's record say what the recipe says."""
        if self.in_force:
            self._extras["retain"] = self._levels

    def removes(self, verdict: str) -> bool:
        """Whether artifacts of a trial with this verdict of the host may be removed, or have been."""
        levels = self._extras["retain"] if self.in_force else {}
        return bool(levels.get(f"on_{verdict}", "full") != "full")


def _is_summary(asked: Asked, name: str) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in asked.collector.summaries)
