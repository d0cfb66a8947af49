"""Where a trial's record, receipts and artifacts lie, and writing receipts there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aorta_collectors.api import Verdict
from aorta_collectors.evidence.directory import Anchor
from aorta_collectors.evidence.receipt import Receipt, read_receipt, receipt_name
from aorta_collectors.evidence.trial import Checked
from aorta_collectors.host.asked import Asked


def results_anchor(config: Mapping[str, Any]) -> Anchor | None:
    """The results directory, as it was before the program ran, in the configuration of a trial; None without one."""
    root, identity = config.get("_aorta_results_root"), config.get("_aorta_results_root_id")
    return Anchor(Path(root), (int(identity[0]), int(identity[1])) if identity else None) if root else None


@dataclass(frozen=True)
class TrialPlace:
    """One trial's place in the results.

    Attributes:
        anchor: The operator's directory, above everything that the measured program could change.
        results_dir: Where the host writes trial_<coordinates>.json.
        coordinates: "d0_m0_t3" of the fourth trial.
        cell: The sweep's cell; None in a plain run.
    """

    anchor: Anchor
    results_dir: Path
    coordinates: str
    trial_id: str
    cell: str | None

    @classmethod
    def of(cls, request: Any, trial_idx: int, results_dir: Path, anchor: Anchor) -> TrialPlace:
        """The place of a trial of the host's request."""
        coordinates = f"d{request.dataset_index}_m{request.mitigation_index}_t{trial_idx}"
        return cls(anchor, Path(results_dir), coordinates, f"{request.workload}_{coordinates}", request.cell_name)

    @property
    def stem(self) -> Path:
        """The path of the host's record without .json, where the names of all that belongs to the trial begin."""
        return self.results_dir / f"trial_{self.coordinates}"

    def artifacts(self, asked: Asked) -> Path:
        """The directory that the host gives a collector."""
        return self.stem / asked.collector.output_subdir

    def receipt(self, asked: Asked, checked: Checked, verdict: Verdict, reason: str, **fields: Any) -> Receipt:
        """A receipt of what was checked, in which `verdict` and `reason` have the last word."""
        directory = self.artifacts(asked)
        return Receipt(
            collector=asked.collector.name,
            trial=self.trial_id,
            cell=self.cell,
            run_ids=tuple(asked.run_ids),
            verdict=verdict.value,
            reason=reason,
            options=dict(asked.options.raw),
            on_missing=asked.options.on_missing,
            artifacts=f"{directory.parent.name}/{directory.name}",
            files=dict(checked.files),
            sha256=dict(checked.sha256),
            metrics=dict(checked.metrics),
            details=dict(checked.verification.details),
            **fields,
        )

    def write(self, receipt: Receipt) -> None:
        """Raises ArtifactError."""
        with self.anchor.open(self.results_dir) as directory:
            directory.write(receipt_name(self.coordinates, receipt.collector), receipt.to_json())

    def read(self, collector: str) -> Receipt | None:
        """The receipt that lies there, of whatever run. Raises ArtifactError."""
        with self.anchor.open(self.results_dir) as directory:
            return read_receipt(directory, receipt_name(self.coordinates, collector))
