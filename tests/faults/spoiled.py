"""A run with several trials, one of which somebody spoils, and what verification says of all of them."""

from __future__ import annotations

import functools
import json
import os
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aorta_collectors.api import Expected, Verdict
from aorta_collectors.evidence.directory import Anchor
from aorta_collectors.evidence.run import verify_run
from aorta_collectors.evidence.trial import check_artifacts
from aorta_collectors.registry import load_collector
from benchmarks.verification import make_run

TRIALS, RANKS = 3, 2
CELL = Path("cells/cell0/training")
NAMES = frozenset({"layer_numerics"})
_COLLECTOR = functools.partial(load_collector, "layer_numerics")


@dataclass(frozen=True)
class Run:
    """A copy of a run, whose trial 1 is to be spoiled."""

    run_dir: Path

    @property
    def cell(self) -> Path:
        return self.run_dir / CELL

    @property
    def trial(self) -> Path:
        return self.cell / "trial_d0_m0_t1"

    @property
    def artifacts(self) -> Path:
        return self.trial / "layer_numerics"

    @property
    def records(self) -> Path:
        return self.artifacts / "layers_rank1.jsonl"

    @property
    def summary(self) -> Path:
        return self.artifacts / "summary_rank1.json"

    @property
    def receipt(self) -> Path:
        return self.cell / "receipt_d0_m0_t1_layer_numerics.json"

    def edit(self, path: Path, **changes: Any) -> None:
        """Change fields of a JSON file."""
        path.write_text(json.dumps({**json.loads(path.read_bytes()), **changes}))

    def at_the_end(self) -> tuple[str, str]:
        """What the trial's own verification would say, as its program ends."""
        collector = _COLLECTOR()
        expected = Expected(collector.validate({"NANLOG_SAMPLE_EVERY": "1"}), frozenset({"cell0-1"}))
        found = check_artifacts(collector, Anchor(self.run_dir), self.artifacts, expected).verification
        return found.verdict.value, found.reason

    def later(self) -> tuple[str, str]:
        """What `verify` says of the spoilt trial. All others must be as they were."""
        findings = verify_run(self.run_dir, NAMES, load_collector)
        others = [finding for finding in findings if not finding.trial.endswith("t1")]
        assert len(others) == TRIALS - 1
        assert {finding.verdict for finding in others} == {Verdict.CAPTURED}
        (found,) = [finding for finding in findings if finding not in others]
        return found.verdict.value, found.reason


def built(directory: Path) -> Path:
    """A good run below `directory`."""
    make_run(directory / "run", TRIALS, RANKS, records=40)
    ledger = {
        "schema_version": 1,
        "requested": [
            {"cell": "cell0", "trial": f"training_d0_m0_t{index}", "collector": "layer_numerics"}
            for index in range(TRIALS)
        ],
    }
    (directory / "run" / "evidence.json").write_text(json.dumps(ledger))
    return directory / "run"


def copied(run_dir: Path, place: Path) -> Run:
    return Run(Path(shutil.copytree(run_dir, place / "run", symlinks=True)))


def state(directory: Path) -> dict[str, tuple[int, bytes]]:
    """Mode and content of everything below a directory, to see that nothing was touched."""
    return dict(_entries(directory))


def _entries(directory: Path) -> Iterator[tuple[str, tuple[int, bytes]]]:
    for path in sorted(directory.rglob("*")):
        mode = os.lstat(path).st_mode
        yield str(path.relative_to(directory)), (mode, path.read_bytes() if stat.S_ISREG(mode) else b"")
