"""A finding: one request for evidence, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aorta_collectors.api import Verdict
from aorta_collectors.evidence.receipt import Receipt


@dataclass(frozen=True)
class Finding:
    """One request and its verdict.

    Attributes:
        trial_file: The host's record of the trial.
        receipt: As found; None where the trial ran without the plugin, or it is not to be believed.
        added: Files that lie among the artifacts and did not when they were verified.
    """

    cell: str
    trial: str
    collector: str
    verdict: Verdict
    reason: str
    trial_file: Path
    artifacts: Path
    receipt: Receipt | None = None
    added: tuple[str, ...] = ()

    @property
    def index(self) -> str:
        """The N of the trial's id, <workload>_d<D>_m<M>_t<N>; "-" where it is not known."""
        return self.trial.rpartition("_t")[2] or "-"

    @property
    def satisfied(self) -> bool:
        return self.verdict.satisfied

    @property
    def tolerated(self) -> bool:
        """Satisfied, or not required by the recipe (on_missing: warn)."""
        return self.satisfied or (self.receipt is not None and self.receipt.on_missing == "warn")

    def to_json(self) -> dict[str, Any]:
        return {
            "cell": self.cell,
            "trial": self.trial,
            "collector": self.collector,
            "verdict": self.verdict.value,
            "satisfied": self.satisfied,
            "reason": self.reason,
            "artifacts": str(self.artifacts),
            "added": list(self.added),
            "metrics": dict(self.receipt.metrics) if self.receipt is not None else {},
        }
