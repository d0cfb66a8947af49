"""DuckDB over captures: the views `records`, `summaries`, `receipts` and `trials`.

Records are read where they lie, when a query asks for them. Views have the fields of the schemas as columns. Besides,
all have `run`, `cell` and `trial`; records and summaries have `process`, the stem of files' names; records also have:

| column | what |
|---|---|
| restart | the attempt of the process |
| training_step | training steps begun, by which ranks are lined up |
| layer | module_path, or layer_name where a record has none, as the stock logger's |
| kind | the worst that is in the tensor: nan, inf, huge or oob; NULL where it is clean |
| position | DOUBLE[], by which ORDER BY puts a trial's records of all ranks into one order (layer_numerics/order.py) |

A line that is no record, such as one that a killed process tore off, is passed over; `unreadable_lines` counts them.
Numbers of records are finite or NULL: a file may say 1e999 all the same. position[6] is the place within the step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from aorta_collectors.analysis.captures import Captures, Trial
from aorta_collectors.analysis.columns import columns_of
from aorta_collectors.analysis.connection import Connection, Progress
from aorta_collectors.schema_check import load_schema

_PLACE = {"run": "VARCHAR", "cell": "VARCHAR", "trial": "VARCHAR"}
_TRIALS = {
    **_PLACE,
    "workload": "VARCHAR",
    "exit_status": "VARCHAR",
    "passed": "BOOLEAN",
    "mitigations": "VARCHAR[]",
    "environment": "VARCHAR",
    "wall_clock_s": "DOUBLE",
    "verdict": "VARCHAR",
    "reason": "VARCHAR",
    "artifacts": "VARCHAR",
    "num_processes": "BIGINT",
}
_PROCESSES = {
    **_PLACE,
    "process": "VARCHAR",
    "file": "VARCHAR",
    "restart": "BIGINT",
    "by_part": "BOOLEAN",
    "stage": "BIGINT",
}
# As layer_numerics/order.py says it.
_PART = """CASE WHEN NOT p.by_part THEN 0
    WHEN r.direction = 'pipeline' THEN CASE WHEN coalesce(r.checkpoint, '') = '' THEN 0 ELSE 1 END
    ELSE greatest(CASE r.direction WHEN 'fwd' THEN 1 WHEN 'bwd' THEN 2 WHEN 'grad' THEN 3 ELSE 0 END,
                  CASE WHEN r.recompute THEN 2 ELSE 0 END) END"""
# The stock logger's records have no seq; their time is that of the process.
_POSITION = f"""[p.restart, r.step - coalesce(r.evaluation_steps, 0), CASE WHEN r.evaluation THEN r.step ELSE 0 END,
    {_PART}, CASE WHEN {_PART} < 2 THEN p.stage ELSE -p.stage END,
    coalesce(r.seq, r.t, 0), coalesce(r.rank, 0)]::DOUBLE[]"""
_KIND = """CASE WHEN r.nan_count > 0 THEN 'nan' WHEN r.inf_count > 0 THEN 'inf' WHEN r.huge_count > 0 THEN 'huge'
    WHEN r.oob_count > 0 THEN 'oob' END"""
# Of a line that is no JSON, all columns are NULL.
_IS_RECORD = "r.type = 'layer_step' AND r.step IS NOT NULL"


class Database(Connection):
    """A context manager.

    Args:
        captures: What the views are of.
        progress: Of long queries.

    Raises:
        CollectorsError: DuckDB is not installed.
    """

    def __init__(self, captures: Captures, progress: Progress | None = None) -> None:
        super().__init__(progress)
        self.captures = captures
        with self.asked():
            self._make_views()

    def unreadable_lines(self) -> int:
        """How many lines of the records' files are no records. Reads all of them."""
        return int(self.rows(f"SELECT count(*) FROM lines r WHERE ({_IS_RECORD}) IS NOT TRUE")[0][0])

    def _make_views(self) -> None:
        trials = self.captures.trials
        processes = [(trial, process) for trial in trials for process in trial.processes]
        self.table("trials", _TRIALS, (_trial_row(trial) for trial in trials))
        receipt_columns = columns_of(load_schema("receipt"))
        self.table(
            "receipts",
            {**_PLACE, **receipt_columns},
            (
                {**orjson.loads(receipt.to_json()), **_place(trial)}
                for trial in trials
                for receipt in trial.receipts.values()
            ),
        )
        self.table(
            "summaries",
            {**_PLACE, "process": "VARCHAR", **columns_of(load_schema("layer_numerics.summary"))},
            ({**process.summary, **_place(trial), "process": process.stem} for trial, process in processes),
        )
        files: dict[str, Mapping[str, Any]] = {}
        for trial, process in processes:
            if process.records is None:
                continue
            line = process.line
            files[self.readable(process.records)] = {
                **_place(trial),
                "process": process.stem,
                "restart": line.restart,
                "by_part": line.by_part,
                "stage": line.stage,
            }
        self.table("processes", _PROCESSES, ({**row, "file": file} for file, row in files.items()))
        columns = columns_of(load_schema("layer_numerics.record"))
        self.lines("lines", columns, list(files))
        fields = ", ".join(
            f"CASE WHEN isfinite(r.{name}) THEN r.{name} END AS {name}" if type_ == "DOUBLE" else f"r.{name}"
            for name, type_ in columns.items()
        )
        self.connection.execute(
            f"CREATE VIEW records AS SELECT p.run, p.cell, p.trial, p.process, p.restart, "
            f"r.step - coalesce(r.evaluation_steps, 0) AS training_step, {_POSITION} AS position, "
            f"coalesce(nullif(r.module_path, ''), r.layer_name) AS layer, {_KIND} AS kind, {fields} "
            f"FROM lines r JOIN processes p ON r.filename = p.file WHERE {_IS_RECORD}"
        )


def _place(trial: Trial) -> dict[str, str]:
    return {"run": trial.run, "cell": trial.cell, "trial": trial.trial}


def _trial_row(trial: Trial) -> dict[str, Any]:
    record = trial.record
    environment = record.get("execution_env")
    receipt = trial.receipt
    return {
        **_place(trial),
        "workload": record.get("workload"),
        "exit_status": record.get("exit_status"),
        "passed": trial.passed,
        "mitigations": record.get("mitigations_applied"),
        "environment": environment.get("name") if isinstance(environment, dict) else None,
        "wall_clock_s": record.get("wall_clock_sec"),
        "verdict": receipt.verdict if receipt is not None else None,
        "reason": receipt.reason if receipt is not None else None,
        "artifacts": str(trial.artifacts),
        "num_processes": len(trial.processes),
    }
