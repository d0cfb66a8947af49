"""Whether the options that were asked for were in force in a process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aorta_collectors.api import Verdict
from aorta_collectors.artifacts.process import Fault, Process


def check_configuration(process: Process, asked: Mapping[str, Any]) -> None:
    """Raise Fault (misapplied) if other options were in force. Those that were not given are as by default.

    Args:
        asked: As the summary's `config` tells it.
    """
    got = process.summary["config"]
    for name, wanted in asked.items():
        if name not in got or got[name] != wanted:
            raise Fault(
                Verdict.MISAPPLIED,
                f"summary_{process.stem}.json: {name} in force is {_told(got.get(name))}, asked for {_told(wanted)}",
            )


def _told(value: object) -> str:
    text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    return "nothing" if value is None or not text else (text[:77] + "..." if len(text) > 80 else text)
