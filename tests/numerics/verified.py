"""Asking for the verdict on a synthetic capture, and changing one."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from aorta_collectors.api import Expected, Options, Verdict, Verification
from aorta_collectors.evidence.directory import Anchor
from aorta_collectors.numerics.verify.verification import verify
from tests.numerics.synthetic import RUN_ID

#: Options that ask for every kind of file.
ALL = {"trace": "payload", "profile": "deferred"}


def check(directory: Path, config: Mapping[str, Any] | None = None, **expected: Any) -> Verification:
    fields: dict[str, Any] = {"run_ids": frozenset({RUN_ID}), **expected}
    with Anchor(directory.parent).open(directory) as artifacts:
        return verify(artifacts, Expected(Options({}, config or {}), **fields))


def told(directory: Path, config: Mapping[str, Any] | None = None, **expected: Any) -> tuple[Verdict, str]:
    found = check(directory, config, **expected)
    return found.verdict, found.reason


def edit_lines(directory: Path, kind: str, change: Callable[[list[Any]], object], rank: int = 0) -> None:
    path = directory / f"{kind}_rank{rank}.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    change(lines)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
