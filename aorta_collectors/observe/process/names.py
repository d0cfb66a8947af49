"""What a collector calls the files that its processes leave, and the variables that say where."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ProcessNames:
    """One collector's.

    Attributes:
        records: What the name of the file begins with that a process claims: "layers" for layers_rank0.jsonl.
        run_id_variable: Set by a sweep: the trial whose evidence a process writes.
        directory_variable: Where to write it.
        default_directory: Where, alone, without that variable.
    """

    records: str
    run_id_variable: str
    directory_variable: str
    default_directory: str
