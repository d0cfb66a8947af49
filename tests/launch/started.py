"""Running a command as a sweep does, and asking the collector whether the evidence is there."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from aorta_collectors.api import Capture, Expected, Launch, Verdict
from aorta_collectors.evidence.directory import Anchor
from aorta_collectors.layer_numerics.collector import LayerNumerics
from tests.support import BIN, Ran, run

RUN_ID = "run-1"


@dataclass(frozen=True)
class Started:
    """A command that has ended: how it was launched, what it printed, and what was found of it."""

    launch: Launch
    ran: Ran
    artifacts: Path
    verdict: Verdict
    reason: str

    def captured(self) -> Started:
        assert self.ran.code == 0, self.ran.err
        assert self.verdict is Verdict.CAPTURED, f"{self.launch}\n{self.reason}\n{self.ran.err}"
        return self


def started(argv: list[str], cwd: Path, options: Mapping[str, str] | None = None) -> Started:
    """Plan the command for a trial in `cwd`, run it there and verify what it left.

    Args:
        options: The collect: block.
    """
    collector = LayerNumerics()
    asked = collector.validate(options)
    artifacts = cwd / "evidence"
    artifacts.mkdir()
    # What the parser looks for and what will run are the same files.
    of_the_user = {"PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}"}
    launch = Launch.of_this_process(argv, of_the_user, str(cwd))
    launch = collector.plan(launch, asked, Capture(artifacts, RUN_ID))
    ran = run(list(launch.argv), cwd, {name: value for name, value in launch.env.items() if value is not None})
    with Anchor(cwd).open(artifacts) as opened:
        found = collector.verify(opened, Expected(asked, frozenset({RUN_ID}), launch.route))
    return Started(launch, ran, artifacts, found.verdict, found.reason)
