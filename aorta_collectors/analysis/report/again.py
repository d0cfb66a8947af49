"""The command that runs a whole sweep again, from where it was started."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aorta_collectors.analysis.captures import Captures
from aorta_collectors.errors import ArtifactError
from aorta_collectors.evidence.directory import Anchor
from aorta_collectors.strict_json import check_extent

_RESOLVED = "recipe.resolved.yaml"


def sweep_again(captures: Captures) -> str | None:
    """For a shell; None where it is not known which recipe it was.

    A workload's sweep runs by the recipe as the sweep resolved it. The host takes no such recipe for a program of one's
    own: there it is the one that the sweep was given, which may have changed since.
    """
    run_dir = captures.path.absolute()
    argv = next((found for trial in captures.trials if (found := _argv(trial.record))), [])
    recipe = _given(run_dir) if argv else str(run_dir / _RESOLVED) if (run_dir / _RESOLVED).is_file() else None
    if recipe is None:
        return None
    words = ["aorta", "sweep", "run", "--recipe", recipe]
    for sidecar in sorted((run_dir / "sidecars").glob("*.mitigations.json")):
        words += ["--mitigations-file", str(sidecar)]
    return shlex.join([*words, "--", *argv] if argv else words)


def _argv(record: Mapping[str, Any]) -> list[str]:
    config = record.get("config")
    argv = config.get("_aorta_subprocess_argv") if isinstance(config, dict) else None
    return [str(word) for word in argv] if isinstance(argv, list) else []


def _given(run_dir: Path) -> str | None:
    """The path of the recipe, as the host's matrix has it."""
    try:
        with Anchor(run_dir).open(run_dir) as directory:
            content = directory.read("matrix.json")
        check_extent(content)
        matrix = json.loads(content)  # the host writes NaN into its numbers
    except (ArtifactError, ValueError, RecursionError):
        return None
    source = matrix.get("recipe_source") if isinstance(matrix, dict) else None
    path = source.get("path") if isinstance(source, dict) else None
    return path if isinstance(path, str) else None
