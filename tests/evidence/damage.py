"""Changing the artifacts of a real run in one way, and asking for the verdict."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from aorta_collectors.api import Expected, Verdict
from aorta_collectors.evidence.directory import Anchor
from aorta_collectors.evidence.trial import Checked, check_artifacts
from aorta_collectors.layer_numerics.collector import LayerNumerics
from tests.evidence.conftest import RUN_ID

OPTIONS = {"NANLOG_SAMPLE_EVERY": "1"}
BAD_OPTIONS = {**OPTIONS, "NANLOG_HUGE_THRESHOLD": "1e-6"}
COLLECTOR = LayerNumerics()
Copy = Callable[..., Path]


def check(directory: Path, raw: Mapping[str, str] = OPTIONS, **expected: Any) -> Checked:
    fields: dict[str, Any] = {"run_ids": frozenset({RUN_ID}), **expected}
    options = COLLECTOR.validate(raw)
    return check_artifacts(COLLECTOR, Anchor(directory.parent), directory, Expected(options, **fields))


def verdict(directory: Path, raw: Mapping[str, str] = OPTIONS, **expected: Any) -> tuple[Verdict, str]:
    found = check(directory, raw, **expected).verification
    return found.verdict, found.reason


def edit(directory: Path, of_rank: int = 0, /, **changes: Any) -> dict[str, Any]:
    """Change fields of a summary; a field of None is kept as null, one of ... is removed."""
    path = directory / f"summary_rank{of_rank}.json"
    content: dict[str, Any] = {**json.loads(path.read_text()), **changes}
    content = {key: value for key, value in content.items() if value is not ...}
    path.write_text(json.dumps(content))
    return content


def edit_records(directory: Path, change: Callable[[list[Any]], object], rank: int = 0) -> None:
    path = directory / f"layers_rank{rank}.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    change(lines)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def second_rank(directory: Path, **changes: Any) -> None:
    """A copy of rank 0 as rank 1 of 2."""
    for name in ("summary_rank{}.json", "layers_rank{}.jsonl"):
        shutil.copy(directory / name.format(0), directory / name.format(1))
    edit(directory, 0, world_size=2)
    edit(directory, 1, world_size=2, rank=1, **changes)
    edit_records(directory, lambda lines: [line.update(rank=1, gpu=1) for line in lines], 1)
