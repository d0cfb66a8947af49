"""`investigate open`: a question about artifacts that were there before. Nothing is run, and nothing is copied."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aorta_collectors import __version__
from aorta_collectors.errors import ArtifactError, CollectorsError, OptionsError
from aorta_collectors.investigate.design import VARIANTS
from aorta_collectors.investigate.digests import sha256_below
from aorta_collectors.investigate.files import (
    METADATA,
    SCHEMA_VERSION,
    Investigation,
    open_investigation,
    utc_now,
    write_metadata,
)
from aorta_collectors.investigate.report.subjects import collectors_in, unreadable_in

EXISTING = "existing artifacts"


def open_existing(root: Path, question: str, criterion: str, kind: str, paths: Mapping[str, Path]) -> Investigation:
    """Write down a question about artifacts, and the digest of each of their files, in a fresh root.

    Args:
        paths: Directories of the variants, the baseline among them.

    Raises:
        OptionsError: A path has nothing that could be looked at.
        CollectorsError: `root` exists, or a file cannot be read.
    """
    if os.path.lexists(root):
        raise CollectorsError(f"{root} exists, and nothing is ever overwritten. Name a directory that does not exist")
    for option, text in (("--question", question), ("--criterion", criterion)):
        if not text.strip():
            raise OptionsError(option, "is empty; say it in a sentence")
    resolved = {name: paths[name].resolve() for name in VARIANTS if name in paths}
    if len(set(resolved.values())) < len(resolved):
        raise OptionsError("--candidate", "is the same path as the baseline; a difference is what is looked for")
    for name, path in resolved.items():
        if not collectors_in(path):
            why = unreadable_in(path)
            if why:
                raise OptionsError(f"--{name}", f"{path} cannot be looked at: {why}")
            raise OptionsError(
                f"--{name}",
                f"{path} has nothing that a collector of torch programs left; name a run, a trial, or a directory of "
                "artifacts",
            )
        if root.resolve().is_relative_to(path):
            raise OptionsError("ROOT", f"lies in {path}, and would change what is looked at; name another place")
    metadata = {
        "schema_version": SCHEMA_VERSION,
        "engine": f"aorta-collectors {__version__}",
        "mode": EXISTING,
        "question": question.strip(),
        "criterion": criterion.strip(),
        "kind": kind,
        "created_at": utc_now(),
        "started_at": None,
        "variants": [
            {"name": name, "command": None, "environment": {}, "recipe": None, "cell": None} for name in resolved
        ],
        "collect": {},
        "points": [],
        "design": {"order": "pair", "order_seed": None, "repetitions": 1, "warm_up": 0, "observer_effect": False},
        "schedule": [],
        "seed": None,
        "timeout_s": None,
        "cwd": os.getcwd(),
        "environment": None,
        "revisions": {},
        "existing": [
            {"variant": name, "path": str(path), "sha256": sha256_below(path)} for name, path in resolved.items()
        ],
    }
    try:
        root.mkdir(parents=True)
        write_metadata(root.resolve(), metadata)
    except FileExistsError:
        raise CollectorsError(f"{root} exists by now; name a directory that does not") from None
    except OSError as error:
        raise CollectorsError(f"{root / METADATA} cannot be written: {error.strerror}") from None
    return open_investigation(root)


def differences_from(entry: Mapping[str, Any]) -> dict[str, str]:
    """What is no longer as it was, of one entry of `existing`: a word by path. Raises ArtifactError."""
    path = Path(entry["path"])
    if not os.path.lexists(path):
        raise ArtifactError(f"{path} is not there")
    return changed(entry["sha256"], sha256_below(path))


def changed(recorded: Mapping[str, str], found: Mapping[str, str]) -> dict[str, str]:
    """Paths whose digests differ, each with what happened to it."""
    told = {name: "is not there" for name in recorded if name not in found}
    told |= {name: "was changed" for name, digest in recorded.items() if found.get(name, digest) != digest}
    return told | {name: "was added" for name in found if name not in recorded}
