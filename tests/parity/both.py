"""One script run by the stock logger and by ours, and the comparison of what they left: alike, but for a list."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support import PYTHON, Ran, records, run, summary

Record = dict[str, Any]

MODULES = {"stock": "aorta.instrumentation.layer_numerics", "ours": "aorta_collectors.layer_numerics", "bare": None}
# When and by which process a record was made, and where in its memory the tensor lay.
_OF_A_RUN = frozenset({"t", "pid", "data_ptr", "storage_ptr"})
# Fields that every record of ours has besides the stock ones.
_IDENTITY = frozenset({"tensor_path", "seq", "invocation", "module_path", "optimizer_step"})
# Fields that a record of ours may have: bits of headroom of a low-precision tensor, and the mark of a recomputation.
_OURS = _IDENTITY | {"evaluation", "evaluation_steps", "headroom", "recompute"}
_SUMMARY_OF_A_RUN = frozenset({"pid", "jsonl", "notes", "records_written"})


@dataclass(frozen=True)
class OnlyOurs:
    """Records that the stock logger has not."""

    why: str
    where: Callable[[Record], bool]


@dataclass(frozen=True)
class OnlyStock:
    """Records that ours leaves out."""

    why: str
    where: Callable[[Record], bool]


@dataclass(frozen=True)
class Elsewhere:
    """Records that both have, at another place of the step's order."""

    why: str
    where: Callable[[Record], bool]


@dataclass(frozen=True)
class Differs:
    """Fields whose value is another one, in the records where `where(ours, stock)` holds."""

    why: str
    fields: tuple[str, ...]
    where: Callable[[Record, Record], bool]


@dataclass(frozen=True)
class InSummary:
    """A field of the summary that is another one; `right(ours, stock)` says what both are."""

    why: str
    field: str
    right: Callable[[Any, Any], bool]


Difference = OnlyOurs | OnlyStock | Elsewhere | Differs | InSummary


@dataclass(frozen=True)
class Case:
    """A script, its configuration, and in what the two may differ: each difference has to show, or it is no longer one.

    Attributes:
        script: The text of the program.
        bare: Whether it is also run on its own.
    """

    script: str
    variables: Mapping[str, str]
    words: Sequence[str] = ()
    differences: tuple[Difference, ...] = ()
    bare: bool = False


@dataclass
class Left:
    """What one run left behind."""

    directory: Path
    ran: Ran
    records: list[Record] = field(init=False)
    summary: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        path = self.directory / "layers_rank0.jsonl"
        # The stock logger leaves no file where it had nothing to write.
        self.records = records(path) if path.exists() else []
        self.summary = summary(self.directory) if (self.directory / "summary_rank0.json").exists() else {}

    @property
    def dumps(self) -> dict[str, torch.Tensor]:
        return {path.name: torch.load(path, weights_only=True) for path in self.directory.glob("bad_tensor_*.pt")}

    def roles(self) -> set[str]:
        return {record["role"] for record in self.records}


@dataclass
class Both:
    stock: Left
    ours: Left
    bare: Left | None = None

    def check(self, differences: Sequence[Difference] = ()) -> None:
        """Records, summaries, saved tensors and the program's own output are alike, but for the differences."""
        assert self.stock.ran.ok().out == self.ours.ran.ok().out
        assert self.ours.summary["hook_errors"] == 0, self.ours.summary["first_hook_error"]
        seen: set[Difference] = set()
        self._check_records(differences, seen)
        self._check_summaries(differences, seen)
        self._check_dumps()
        assert [difference.why for difference in differences if difference not in seen] == []

    def _check_records(self, differences: Sequence[Difference], seen: set[Difference]) -> None:
        ours = _without(self.ours.records, [one for one in differences if isinstance(one, OnlyOurs)], seen)
        stock = _without(self.stock.records, [one for one in differences if isinstance(one, OnlyStock)], seen)
        moves = [one for one in differences if isinstance(one, Elsewhere)]
        ours_moved, ours_rest = _split(ours, moves)
        stock_moved, stock_rest = _split(stock, moves)
        assert [_place(record) for record in ours_rest] == [_place(record) for record in stock_rest]
        assert sorted(map(_place, ours_moved)) == sorted(map(_place, stock_moved))
        if [_place(record) for record in ours] != [_place(record) for record in stock]:
            seen.update(moves)
        ours_moved, stock_moved = sorted(ours_moved, key=_place), sorted(stock_moved, key=_place)
        differs = [one for one in differences if isinstance(one, Differs)]
        for one, other in zip(ours_rest + ours_moved, stock_rest + stock_moved, strict=True):
            _check_pair(one, other, differs, seen)

    def _check_summaries(self, differences: Sequence[Difference], seen: set[Difference]) -> None:
        listed = {one.field: one for one in differences if isinstance(one, InSummary)}
        for left in (self.ours, self.stock):
            out_of_range = sum(record.get("oob_count", 0) > 0 for record in left.records)
            assert left.summary["records_written"] == len(left.records)
            assert left.summary["oob_records"] == out_of_range
        for name in self.stock.summary.keys() - _SUMMARY_OF_A_RUN:
            ours, stock = self.ours.summary[name], self.stock.summary[name]
            if isinstance(stock, dict) and isinstance(ours, dict):
                ours = {key: ours[key] for key in stock}  # ours say more of the place
            if ours == stock and type(ours) is type(stock):
                continue
            assert name in listed, f"summary: {name} is {ours!r}, of the stock logger {stock!r}"
            assert listed[name].right(ours, stock), f"summary: {name} is {ours!r}, of the stock logger {stock!r}"
            seen.add(listed[name])

    def _check_dumps(self) -> None:
        ours, stock = self.ours.dumps, self.stock.dumps
        assert ours.keys() == stock.keys()
        for name, tensor in ours.items():
            torch.testing.assert_close(tensor, stock[name], rtol=0, atol=0, equal_nan=True)


def run_command(directory: Path, case: Case) -> Both:
    """Run a case as a user does, with `python -m`."""
    (directory / "train.py").write_text(case.script)

    def one(side: str) -> Left:
        variables = {"NANLOG_DIR": str(directory / side), **case.variables}
        words = [PYTHON, "-m", str(MODULES[side]), "train.py", *case.words]
        return Left(directory / side, run(words, directory, variables))

    with ThreadPoolExecutor(2) as pool:
        stock, ours = pool.map(one, ("stock", "ours"))
    return Both(stock, ours)


def run_cases(factory: pytest.TempPathFactory, name: str, cases: Mapping[str, Case]) -> dict[str, Both]:
    """Run all cases of a test module, two runs at a time, once for all of pytest's workers."""
    base = factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    directory = base / f"parity-{name}"
    sides = {key: [side for side in MODULES if side != "bare" or case.bare] for key, case in cases.items()}
    with (base / f"parity-{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (directory / "done").exists():
            _run_all(directory, cases, sides)
            (directory / "done").touch()

    def left(key: str, side: str) -> Left:
        place = directory / key / side
        ran = Ran(int((place / "code").read_text()), (place / "out").read_text(), (place / "err").read_text())
        return Left(place, ran)

    return {key: Both(**{side: left(key, side) for side in sides[key]}) for key in cases}


def _run_all(directory: Path, cases: Mapping[str, Case], sides: Mapping[str, Sequence[str]]) -> None:
    directory.mkdir()
    jobs = []
    for key, case in cases.items():
        (directory / key).mkdir()
        (directory / f"{key}.py").write_text(case.script)
        jobs += [
            {
                "directory": str(directory / key / side),
                "module": MODULES[side],
                "words": [f"{key}.py", *case.words],
                "variables": dict(case.variables),
            }
            for side in sides[key]
        ]
    (directory / "jobs.json").write_text(json.dumps(jobs))
    run([PYTHON, str(Path(__file__).with_name("prefork.py")), "jobs.json"], directory, timeout=300).ok()


def _place(record: Record) -> tuple[Any, ...]:
    """Where a record belongs. The batch of a followed tensor is part of it: several pass within a step."""
    names = record["step"], record["layer_name"], record["direction"], record["role"], record["param_name"]
    followed = (record["phase"], record["batch_id"]) if record["direction"] == "pipeline" else ()
    return (*names, record.get("checkpoint", ""), *map(str, followed))


def _without(all_of_them: list[Record], listed: Sequence[Any], seen: set[Difference]) -> list[Record]:
    kept = []
    for record in all_of_them:
        matching = [one for one in listed if one.where(record)]
        seen.update(matching)
        if not matching:
            kept.append(record)
    return kept


def _split(all_of_them: list[Record], moves: Sequence[Elsewhere]) -> tuple[list[Record], list[Record]]:
    moved = [record for record in all_of_them if any(move.where(record) for move in moves)]
    return moved, [record for record in all_of_them if not any(move.where(record) for move in moves)]


def _check_pair(ours: Record, stock: Record, differs: Sequence[Differs], seen: set[Difference]) -> None:
    missing = stock.keys() - ours.keys()
    assert not missing, f"{_place(ours)} has no {sorted(missing)}"
    assert _IDENTITY <= ours.keys() - stock.keys() <= _OURS
    for name in stock.keys() - _OF_A_RUN:
        if ours[name] == stock[name] and type(ours[name]) is type(stock[name]):
            continue
        listed = [one for one in differs if name in one.fields and one.where(ours, stock)]
        assert listed, f"{_place(ours)}: {name} is {ours[name]!r}, of the stock logger {stock[name]!r}"
        seen.update(listed)
    if "data_ptr" in stock:
        for record in (ours, stock):
            data, storage = (int(record[name], 16) for name in ("data_ptr", "storage_ptr"))
            assert data - storage == record["storage_offset_bytes"]
