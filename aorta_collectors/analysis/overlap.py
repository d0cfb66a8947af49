"""Which records lie in the same memory as a bad tensor, in its step or the one before.

With `addr` a record has the address of the tensor's first element (data_ptr), and where the memory behind it begins and
how large it is. Strides are not recorded. So there are two ranges, in bytes:

- where the elements lie if the tensor is contiguous: from data_ptr, numel elements long, at most to the memory's end;
- where they can lie at all: from data_ptr to the end of the memory. That holds for every tensor, since no stride is
  negative.

Two records whose first ranges meet are on the "same bytes"; where only the second ones do, one of them may reach into
the other ("same storage"). Addresses mean something within one process alone, and a caching allocator gives the memory
of a tensor that is gone to the next one: an overlap is a lead, no proof.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any

from aorta_collectors.analysis.columns import quoted
from aorta_collectors.analysis.database import Database
from aorta_collectors.analysis.layer_names import meant
from aorta_collectors.errors import ArtifactError

SAME_BYTES, SAME_STORAGE = "same bytes", "same storage"
# In bytes. Of another dtype only the second range is known.
_SIZES: Mapping[str, int] = MappingProxyType(
    {
        **{f"torch.{name}": 1 for name in ("bool", "int8", "uint8")},
        **{f"torch.float8_{name}": 1 for name in ("e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz", "e8m0fnu")},
        **{f"torch.{name}": 2 for name in ("float16", "bfloat16", "int16", "uint16")},
        **{f"torch.{name}": 4 for name in ("float32", "int32", "uint32", "complex32")},
        **{f"torch.{name}": 8 for name in ("float64", "int64", "uint64", "complex64")},
        "torch.complex128": 16,
    }
)
_PROCESS = ("run", "cell", "trial", "process")
_RECORD = (
    *("rank", "step", "training_step", "layer", "direction", "role", "tensor_path", "param_name", "invocation"),
    *("phase", "checkpoint", "seq", "kind", "nan_count", "inf_count", "huge_count", "oob_count", "finite_abs_max"),
    *("dtype", "shape", "data_ptr", "storage_ptr", "storage_nbytes"),
)
# Addresses are below 2**63 wherever programs run; sums of what a file says may be above.
_START = "try_cast(data_ptr AS BIGINT)::HUGEINT"
_END = "try_cast(storage_ptr AS BIGINT)::HUGEINT + storage_nbytes"

Fields = Mapping[str, Any]
Process = tuple[str, str, str, str]


@dataclass(frozen=True)
class Overlap:
    """A record whose memory overlaps a bad tensor's.

    Attributes:
        record: Where it is, and its numbers.
        relation: "same bytes" or "same storage".
        num_bytes: How many they share, if both are contiguous; with "same storage", how many they can share at most.
        before: Whether it was read before the bad tensor.
        same_tensor: Whether it is that one, in the step before or in another call.
    """

    record: Fields
    relation: str
    num_bytes: int
    before: bool
    same_tensor: bool


@dataclass(frozen=True)
class Bad:
    """The bad tensor of one process.

    Attributes:
        process: Run, cell, trial and stem of the files' names.
        has_address: Whether it is known where it lay.
        overlaps: In the order of observation; where there are more than asked for, those on the same bytes, those
            before it, and the nearest are preferred.
        num_overlaps: Of all.
        num_same, num_before: Records with an address in its step, itself included, and in the step before.
    """

    process: Process
    record: Fields
    has_address: bool
    overlaps: tuple[Overlap, ...]
    num_overlaps: int
    num_same: int
    num_before: int

    def to_json(self) -> dict[str, Any]:
        place = dict(zip(_PROCESS, self.process, strict=True))
        return {**place, **{name: value for name, value in asdict(self).items() if name != "process"}}


def overlaps(database: Database, step: int | None = None, layer: str | None = None, most: int = 20) -> tuple[Bad, ...]:
    """For the first bad record of each process, what overlaps it.

    Args:
        step: The first bad record of that step.
        layer: The first bad record of the layers that this names (layer_names.py).
        most: Overlaps that are listed of one process.

    Raises:
        ArtifactError: No record of any of them says where its tensor lay, or no layer has that name.
    """
    _make_bad(database, step, layer)
    found = database.dicts(f"SELECT {', '.join((*_PROCESS, *_RECORD))} FROM bad ORDER BY position")
    if found and all(row["data_ptr"] is None for row in found):
        raise ArtifactError(
            f"no bad record in {database.captures.path} says where its tensor lay; addresses are recorded with "
            'NANLOG_ADDR=1, or "diagnostics": ["addr"] in NANLOG_SPEC'
        )
    _make_near(database)
    counts = {
        tuple(row[:4]): row[4:]
        for row in database.rows(f"""
            SELECT {", ".join(_PROCESS)}, count(*) FILTER (step = bad_step), count(*) FILTER (step < bad_step),
                count(*) FILTER (shared > 0 AND NOT is_it) FROM near GROUP BY ALL""")
    }
    listed: dict[Process, list[Overlap]] = {}
    for row in database.dicts(f"""
        SELECT * FROM near WHERE shared > 0 AND NOT is_it
        QUALIFY row_number() OVER (PARTITION BY {", ".join(_PROCESS)} ORDER BY meets = 0, NOT before,
            CASE WHEN before THEN bad_step - step END, CASE WHEN before THEN -place ELSE place END) <= {most}
        ORDER BY position"""):
        listed.setdefault(_process(row), []).append(
            Overlap(
                {name: row[name] for name in _RECORD},
                SAME_BYTES if row["meets"] > 0 else SAME_STORAGE,
                row["meets"] if row["meets"] > 0 else row["shared"],
                row["before"],
                row["same_tensor"],
            )
        )

    def bad(row: dict[str, Any]) -> Bad:
        process = _process(row)
        same, before, total = counts.get(process, (0, 0, 0))
        record = {name: row[name] for name in _RECORD}
        return Bad(process, record, process in counts, tuple(listed.get(process, ())), total, same, before)

    return tuple(map(bad, found))


def _process(row: Fields) -> Process:
    return row["run"], row["cell"], row["trial"], row["process"]


def _make_bad(database: Database, step: int | None, layer: str | None) -> None:
    conditions: list[str] = ["kind IS NOT NULL"]
    parameters: list[Any] = []
    if step is not None:
        conditions.append("step = ?")
        parameters.append(step)
    if layer is not None:
        there = database.rows("SELECT DISTINCT layer, layer_name FROM records WHERE layer IS NOT NULL ORDER BY ALL")
        conditions.append("layer IN (SELECT unnest(?::VARCHAR[]))")
        parameters.append(meant(there, [layer], database.captures.path))
    database.rows(
        f"CREATE TABLE bad AS SELECT *, position[6] AS place FROM records "
        f"WHERE {' AND '.join(conditions)} "
        f"QUALIFY row_number() OVER (PARTITION BY {', '.join(_PROCESS)} ORDER BY position) = 1",
        parameters,
    )


def _make_near(database: Database) -> None:
    """The records with an address in the same and the previous step of each bad one, and the bytes shared with it."""
    size = " ".join(f"WHEN {quoted(name)} THEN {size}" for name, size in _SIZES.items())
    # The stock logger does not tell the memory behind every tensor.
    ranges = f"""{_START} AS start, numel::HUGEINT * CASE dtype {size} END AS num_bytes,
        coalesce({_END}, start + num_bytes) AS storage_end,
        least(storage_end, start + coalesce(num_bytes, 0)) AS data_end"""
    identity = ("layer", "role", "direction", "tensor_path", "param_name", "phase", "checkpoint")
    same = " AND ".join(f"r.{name} IS NOT DISTINCT FROM b.{name}" for name in identity)
    of_process = " AND ".join(f"r.{name} = b.{name}" for name in _PROCESS)
    database.rows(f"""CREATE TABLE near AS
        SELECT {", ".join(f"r.{name}" for name in (*_PROCESS, *_RECORD))}, r.position, r.place, b.step AS bad_step,
            (r.step, r.place) < (b.step, b.place) AS before, {same} AS same_tensor,
            r.step = b.step AND r.place = b.place AND {same} AND r.data_ptr = b.data_ptr AS is_it,
            greatest(0, least(r.data_end, b.data_end) - greatest(r.start, b.start)) AS meets,
            greatest(0, least(r.storage_end, b.storage_end) - greatest(r.start, b.start)) AS shared
        FROM (SELECT *, position[6] AS place, {ranges} FROM records WHERE storage_end > start) r
        JOIN (SELECT *, {ranges} FROM bad WHERE storage_end > start) b
            ON {of_process} AND r.step BETWEEN b.step - 1 AND b.step""")
