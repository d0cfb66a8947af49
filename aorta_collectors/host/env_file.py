"""`env_passthrough_mode: file`: what a collector sets stands in AORTA_ENV_FILE too, beside the cell's own variables.

A container sees the file alone (`docker run --env-file "$AORTA_ENV_FILE"`). PYTHONPATH is left out of it: it names
directories of this machine, and would take the place of the image's own.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

log = logging.getLogger("aorta.collectors")


class EnvFile:
    """The variables that the host will write for the trial's command.

    Args:
        extras: The trial's `_aorta_probe_extras`, which the host reads when it writes the file; None in the workload
            flow, which has no such file.
    """

    def __init__(self, extras: dict[str, Any] | None) -> None:
        self._extras = extras if extras is not None else {}
        self._cells = self._extras.get("cell_env_vars")

    @property
    def in_force(self) -> bool:
        return self._extras.get("env_passthrough_mode") == "file"

    def add(self, env: Mapping[str, str | None]) -> None:
        if not self.in_force:
            return
        lines = {name: _one_line(value) for name, value in env.items() if value is not None and name != "PYTHONPATH"}
        for name in sorted(name for name, value in lines.items() if value is None):
            log.warning("AORTA_ENV_FILE: %s is left out: it has several lines, and the file has one for each", name)
        # A new mapping: the host's request holds the old one, for all trials of the cell.
        merged: dict[str, str | None] = {**(self._extras.get("cell_env_vars") or {}), **env, **lines}
        merged["PYTHONPATH"] = (self._cells or {}).get("PYTHONPATH")
        self._extras["cell_env_vars"] = {name: value for name, value in merged.items() if value is not None}

    def restore(self) -> None:
        """Have the trial's record say what the recipe says."""
        if self.in_force:
            self._extras["cell_env_vars"] = self._cells


def _one_line(value: str) -> str | None:
    """The value in one line: JSON means the same in one; None for other text that has several."""
    if "\n" not in value and "\r" not in value:
        return value
    try:
        return json.dumps(json.loads(value))
    except ValueError:
        return None
