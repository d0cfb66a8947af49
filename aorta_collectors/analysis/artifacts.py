"""Finding the artifacts that a person means: those of a trial, or of a launch without a sweep."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from aorta_collectors.errors import ArtifactError
from aorta_collectors.evidence.directory import Anchor, ArtifactDirectory

_SUMMARIES = "summary_rank"
_SUBDIRECTORY = "layer_numerics"


@contextlib.contextmanager
def layer_numerics_below(path: Path) -> Iterator[ArtifactDirectory]:
    """Open the artifacts of layer_numerics in `path`, or, where that is a trial's directory or record, below it.

    Raises:
        ArtifactError: There are none.
    """
    trial = path.with_suffix("") if path.is_file() else path
    directory = next((found for found in (trial, trial / _SUBDIRECTORY) if _holds_summaries(found)), None)
    if directory is None:
        raise ArtifactError(
            f"neither {trial} nor {trial / _SUBDIRECTORY} holds a {_SUMMARIES}<N>.json; name what NANLOG_DIR named, or "
            "a trial's directory, such as CELL/training/trial_d0_m0_t0"
        )
    with Anchor(trial).open(directory) as artifacts:
        yield artifacts


def _holds_summaries(directory: Path) -> bool:
    try:
        return any(name.startswith(_SUMMARIES) for name in os.listdir(directory))
    except OSError:
        return False
