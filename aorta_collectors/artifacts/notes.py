"""Notes that processes leave beside their evidence: which signal ended one, and that a fork trained unobserved."""

from __future__ import annotations

import contextlib
import re

from aorta_collectors import strict_json
from aorta_collectors.api import Artifacts, Expected, Verdict
from aorta_collectors.artifacts.process import Fault
from aorta_collectors.errors import ArtifactError
from aorta_collectors.observe.process.signals import NOTED, note_name, told

_FORK_NOTE = re.compile(r"unobserved_p\d+\.json$")


def killed_by(artifacts: Artifacts, stem: str) -> str | None:
    """Which signal ended a process, and where; None where there is no such note."""
    for signal_name in NOTED:
        with contextlib.suppress(ArtifactError):
            note = artifacts.read(note_name(signal_name, stem)).decode(errors="replace")
            if note:
                return told(signal_name, note)
    return None


def check_forks(artifacts: Artifacts, expected: Expected) -> None:
    """Raise Fault (incomplete) if a forked child trained a model where nothing is observed."""
    for name in artifacts.sizes():
        if not _FORK_NOTE.match(name):
            continue
        try:
            note = strict_json.loads(artifacts.read(name))
            ours, pid = note["run_id"] in expected.run_ids, note["pid"]
        except (ValueError, ArtifactError, KeyError, TypeError) as error:
            raise Fault(Verdict.INVALID, f"{name}: {type(error).__name__}: {error}") from None
        if ours:
            raise Fault(
                Verdict.INCOMPLETE,
                f"process {pid}, forked by an observed one, trained a model, and forked processes are not observed; "
                "start it with the spawn method",
            )
