"""Run directories made up trial by trial: for what cells say of each other, which no real sweep does on demand."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from aorta_collectors.evidence.receipt import Receipt, receipt_name
from tests.captured.synthetic import Record, write


def trial(
    run_dir: Path,
    cell: str,
    ranks: Mapping[int, Sequence[Record]] | None = None,
    *,
    index: int = 0,
    verdict: str | None = "captured",
    metrics: Mapping[str, Any] | None = None,
    processes: Sequence[Mapping[str, Any]] = (),
    mitigations: Sequence[str] | None = None,
    passed: bool = True,
    summaries: Mapping[int, Mapping[str, Any]] | None = None,
) -> Path:
    """Write a trial, as a sweep leaves it. Returns its folder, which holds the record.

    Args:
        ranks: What each rank recorded; None where nothing is left.
        processes: What the receipt has kept of each.
        verdict: Of the receipt; None for a trial that still runs, and so has neither a receipt nor a record.
        mitigations: As applied; without it, the cell's name up to a dash.
    """
    folder = run_dir / cell / "training"
    folder.mkdir(parents=True, exist_ok=True)
    coordinates = f"d0_m0_t{index}"
    if ranks is not None:
        write(folder / f"trial_{coordinates}" / "layer_numerics", ranks, summaries)
    if verdict is not None:
        applied = list(mitigations) if mitigations is not None else [cell.partition("-")[0]]
        record = {"workload": "training", "mitigations_applied": applied, "result": {"passed": passed}}
        (folder / f"trial_{coordinates}.json").write_text(json.dumps(record))
        receipt = Receipt(
            collector="layer_numerics",
            trial=f"training_{coordinates}",
            cell=cell,
            run_ids=("made-up",),
            verdict=verdict,
            reason=f"made up to be {verdict}",
            route="front-end",
            options={},
            artifacts=f"trial_{coordinates}/layer_numerics",
            files={},
            metrics=metrics or {},
            details={"processes": list(processes)},
        )
        (folder / receipt_name(coordinates, "layer_numerics")).write_bytes(receipt.to_json())
    return folder
