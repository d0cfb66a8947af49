"""Investigations made up run by run, to the schemas: what real programs do not do on demand, and in no time.

Artifacts are those of tests/analysis/bundles/made.py, and are verified by the real collectors: receipts are real ones.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from aorta_collectors.api import Expected, Verdict
from aorta_collectors.evidence.directory import Anchor
from aorta_collectors.evidence.ledger import Requested, write_ledger
from aorta_collectors.evidence.receipt import Receipt, receipt_name
from aorta_collectors.evidence.trial import check_artifacts
from aorta_collectors.investigate.commands import command_text
from aorta_collectors.investigate.design import Design
from aorta_collectors.investigate.digests import sha256_below
from aorta_collectors.investigate.files import Investigation, open_investigation, write_metadata, write_run
from aorta_collectors.investigate.outcome import outcome_of
from aorta_collectors.investigate.revisions import files_of, fingerprint
from aorta_collectors.registry import load_collector
from tests.analysis.bundles import made as bundles
from tests.investigate.support import declared
from tests.support import PYTHON

_BEGAN = datetime.datetime(2026, 11, 29, 10, 0, tzinfo=datetime.timezone.utc)
_RUN_ID = "run-id"
MIB = 1 << 20
TENSORS = "tensors:keep=values,points=after_forward"
MEMORY = "memory:points=before_forward,after_forward"

#: Writes the artifacts of a run into a directory.
Write = Callable[[Path], object]


class Made:
    """An investigation of a program that exists, and whose runs are made up.

    Args:
        collect: One collector, with its options.
    """

    def __init__(self, tmp_path: Path, *, kind: str = "values", collect: str = TENSORS, **changed: Any) -> None:
        asked = {"collect": (collect,), "design": Design.of(kind, observer_effect=False), **changed}
        root = tmp_path / "root"
        metadata = dict(declared(root, tmp_path, kind=kind, **asked).investigation.metadata)
        self.root = root.resolve()
        self.collector = collect.partition(":")[0]
        files = {
            str(path): fingerprint(path)
            for variant in metadata["variants"]
            for path in files_of(variant["command"], {}, Path(metadata["cwd"]))
        }
        metadata |= {"started_at": _BEGAN.isoformat(), "files": files, "environment": _ENVIRONMENT}
        write_metadata(self.root, metadata)

    @property
    def investigation(self) -> Investigation:
        return open_investigation(self.root)

    @property
    def schedule(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.investigation.metadata["schedule"]
        return found

    def directory(self, number: int) -> Path:
        return self.root / "runs" / str(self.schedule[number - 1]["name"])

    def run(self, number: int, write: Write | None = None, *, stdout: str = "done\n", **fields: Any) -> Path:
        """Make one run of the schedule, ten seconds after the one before.

        Args:
            write: Of a run with the tool.
            fields: Of run.json, in the place of those of a run that completed; the sweep tells duration_s, exit_code,
                verdict and metrics.
        """
        metadata, entry = self.investigation.metadata, self.schedule[number - 1]
        directory = self.directory(number)
        directory.mkdir()
        command = [PYTHON, "-m", "aorta_collectors", "sweep", "run", "--output", str(directory / "bundles")]
        text = command_text(command, {}, metadata["cwd"], f"Run {number}.")
        for name, content in (("command.txt", text), ("stdout.log", stdout), ("stderr.log", ""), ("sweep.log", "")):
            (directory / name).write_text(content)
        told = {"duration_s": 2.0, "exit_code": 0, "verdict": "pass", "metrics": {}}
        told |= {name: fields.pop(name) for name in tuple(told) if name in fields}
        self._sweep(directory, told, write if entry["tool"] else None)
        started = _BEGAN + datetime.timedelta(seconds=10 * number)
        record = {
            "schema_version": 1,
            **entry,
            "attempt": 1,
            "command": command,
            "environment": {},
            "started_at": started.isoformat(),
            "ended_at": (started + datetime.timedelta(seconds=5)).isoformat(),
            "cpu_s": 3.0,
            "max_rss_bytes": 300 * MIB,
            **outcome_of(directory, tuple(metadata["collect"]) if entry["tool"] else (), metadata["points"]),
            "sha256": sha256_below(directory, ("run.json",)),
        }
        write_run(self.root, directory, {**record, **fields})
        return directory

    def all(self, writes: Mapping[str, Write], **fields: Any) -> None:
        """Make all runs, each with what its variant writes."""
        for entry in self.schedule:
            self.run(entry["number"], writes[entry["variant"]] if entry["tool"] else None, **fields)

    def _sweep(self, directory: Path, told: Mapping[str, Any], write: Write | None) -> None:
        """What a sweep of one trial leaves, as far as an investigation looks at it."""
        sweep = directory / "bundles" / "investigation"
        cell = sweep / "none-none" / "_subprocess"
        cell.mkdir(parents=True)
        options = self.investigation.metadata["collect"][self.collector]
        asked = {"_aorta_collect": [self.collector], "_aorta_collect_options": {self.collector: dict(options)}}
        metrics = {"verdict": told["verdict"], "exit_code": told["exit_code"], **told["metrics"]}
        record = {
            "trial_id": "_subprocess_d0_m0_t0",
            "workload": "_subprocess",
            "exit_status": "ok",
            "config": asked if write is not None else {},
            "result": {"elapsed_sec": told["duration_s"], "metrics": metrics},
        }
        (cell / "trial_d0_m0_t0.json").write_text(json.dumps(record))
        if write is None:
            return
        artifacts = cell / "trial_d0_m0_t0" / self.collector
        artifacts.mkdir(parents=True)
        write(artifacts)
        collector = load_collector(self.collector)
        expected = Expected(collector.recall(dict(options)), frozenset({_RUN_ID}), "front-end")
        checked = check_artifacts(collector, Anchor(cell), artifacts, expected)
        receipt = Receipt(
            collector=self.collector,
            trial="_subprocess_d0_m0_t0",
            cell="none-none",
            run_ids=(_RUN_ID,),
            verdict=checked.verification.verdict.value,
            reason=checked.verification.reason,
            route="front-end",
            options=dict(options),
            artifacts=f"trial_d0_m0_t0/{self.collector}",
            files=checked.files,
            metrics=checked.metrics,
            sha256=checked.sha256,
        )
        assert checked.verification.verdict is Verdict.CAPTURED, checked.verification.reason
        (cell / receipt_name("d0_m0_t0", self.collector)).write_bytes(receipt.to_json())
        write_ledger(sweep, [Requested("none-none", "_subprocess_d0_m0_t0", self.collector)])


def layers(*values: float, keep: bool = True, rank: int = 0, ranks: int = 1, kind: str = "output") -> Write:
    """Some layers' outputs in one step, or their parameters after it: each is a tensor full of one number."""

    def write(directory: Path) -> None:
        made = [
            bundles.tensor(f"layers.{index}", torch.full((2, 3), float(value)), keep=keep, kind=kind)
            for index, value in enumerate(values)
        ]
        bundles.tensors(directory, made, rank=rank, ranks=ranks, **_tensors(made, _POINTS[kind]))

    return write


def _tensors(made: Sequence[Mapping[str, Any]], point: str) -> dict[str, Any]:
    bad = [each for each in made if not bool(each["value"].isfinite().all())]
    kept = [each for each in made if each["keep"]]
    found: dict[str, Any] = {
        "run_id": _RUN_ID,
        "config": {**_CONFIG, "points": [point], "keep": "values", "max_bytes": 256 * MIB},
        "tensors_observed": len(made),
        "lines_written": len(made),
        "points": {point: len(made)},
        "tensors_nonfinite": len(bad),
        "values": {"files": bool(kept) * 1, "tensors": len(kept), "bytes": 24 * len(kept), "tensors_lost": 0},
    }
    if bad:
        place = next(index for index, each in enumerate(made) if each is bad[0])
        found |= {"last_nonfinite_step": 1, "last_observed_step": 1}
        found["first_nonfinite"] = {
            "step": 1,
            "order": place,
            "name": bad[0]["name"],
            "invocation": 0,
            "layer": bad[0]["layer"],
            "kind": "output",
            "nan_count": int(bad[0]["value"].isnan().sum()),
            "inf_count": int(bad[0]["value"].isinf().sum()),
        }
    return found


def memory(per_step: int, steps: int = 8, start: int = 100 * MIB) -> Write:
    """Points of a program whose forward passes keep `per_step` bytes each."""

    def write(directory: Path) -> None:
        points = []
        for step in range(1, steps + 1):
            before = start + (step - 1) * per_step
            points.append(bundles.point(step, "before_forward", before))
            points.append(bundles.point(step, "after_forward", before + per_step))
        came = {"seen": steps, "taken": steps, "first": None, "last": None}
        own: dict[str, Any] = {"run_id": _RUN_ID, "steps_seen": steps}
        own["points"] = {"before_forward": came, "after_forward": came}
        own["config"] = {**_CONFIG, "points": ["before_forward", "after_forward"], "detail": "pools", "stacks": 10}
        own["files"] = {"memory": {"written": len(points), "dropped": 0}}
        summary = bundles.memory(directory, points) / "summary_rank0.json"
        summary.write_text(json.dumps({**json.loads(summary.read_text()), **own}))

    return write


_POINTS = {"output": "after_forward", "parameter": "after_step"}
_CONFIG: dict[str, Any] = {"steps": None, "scope": None}
_ENVIRONMENT: dict[str, Any] = {
    "machine": {
        "host": "here",
        "system": "Linux 6",
        "architecture": "x86_64",
        "libc": "",
        "cpu": "a processor",
        "cpus": 2,
        "memory_bytes": 1 << 34,
        "drivers": {},
    },
    "python": {"version": "3.11", "executable": PYTHON},
    "torch": {"version": "2.13", "devices": []},
    "packages": {"torch": "2.13", "numpy": "2"},
    "variables": {"OMP_NUM_THREADS": "1"},
}
