"""What `verify` finds wrong, and how files come to be."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aorta_collectors.cli.printed import printed
from aorta_collectors.investigate.verify.fault import Fault
from aorta_collectors.investigate.verify.whole import verify_investigation


def faults(root: Path) -> list[Fault]:
    return list(verify_investigation(root, printed, lambda done, total: None).faults)


def places(root: Path) -> list[str]:
    """Of faults, below the root."""
    return [fault.place.removeprefix(f"{root}/") for fault in faults(root)]


def edited(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a JSON file by a function of its content."""
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
