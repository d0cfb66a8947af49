"""The first bad value of processes and trials: from records, and from summaries where those are gone."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aorta_collectors.analysis.database import Database
from aorta_collectors.analysis.first_bad import OfProcess, OfTrial, first_bad
from aorta_collectors.analysis.search import captures_below
from tests.captured.sweeps import trial
from tests.captured.synthetic import Record, record, write

Summaries = Mapping[int, Mapping[str, Any]]


def found_in(path: Path) -> list[OfTrial]:
    captures = captures_below(path)
    with Database(captures) as database:
        return first_bad(captures, database)


def of_ranks(directory: Path, ranks: Mapping[int, Sequence[Record]], summaries: Summaries | None = None) -> OfTrial:
    (found,) = found_in(write(directory, ranks, summaries))
    return found


def of_one(directory: Path, records: Sequence[Record], **summary: Any) -> OfProcess:
    (process,) = of_ranks(directory, {0: records}, {0: summary}).processes
    return process


def place(found: Mapping[str, Any] | None) -> tuple[Any, ...] | None:
    return None if found is None else (found["step"], found["layer"], found["kind"])


class TestOneProcess:
    def test_a_clean_one_has_none(self, tmp_path: Path) -> None:
        process = of_one(tmp_path / "out", [record(1), record(2)])
        assert (process.first, process.fault, process.run_up, process.steps) == (None, None, None, 2)

    def test_one_without_records_has_none(self, tmp_path: Path) -> None:
        assert of_one(tmp_path / "out", []).fault is None

    def test_the_first_and_the_first_that_is_not_finite_are_told_apart(self, tmp_path: Path) -> None:
        process = of_one(tmp_path / "out", [record(1), record(2, huge=1), record(3, "b", infs=2), record(4, nans=1)])
        assert place(process.fault) == (2, "a", "huge")
        assert place(process.first_nonfinite) == (3, "b", "inf")

    def test_all_that_is_known_of_it_is_told(self, tmp_path: Path) -> None:
        more = {"batch_id": 7, "phase": "copy", "checkpoint": "emb", "layer_name": "w.a", "evaluation_steps": 1}
        entry = record(5, nans=2, direction="pipeline", role="track", tensor_path="[0]", dtype="torch.float16", **more)
        fault = of_one(tmp_path / "out", [entry]).fault
        assert fault is not None
        expected = {
            **more,
            "step": 5,
            "training_step": 4,
            "layer": "a",
            "direction": "pipeline",
            "role": "track",
            "tensor_path": "[0]",
            "dtype": "torch.float16",
            "nan_count": 2,
            "numel": 8,
        }
        del expected["evaluation_steps"]
        assert expected.items() <= fault.items()

    def test_where_the_records_are_gone_or_cut_the_summary_tells(self, tmp_path: Path) -> None:
        directory = write(tmp_path / "out", {0: [record(1), record(2, "b", nans=1, batch_id=3)]})
        path = directory / "layers_rank0.jsonl"
        path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])
        for _ in ("cut", "gone"):
            (process,) = found_in(directory)[0].processes
            assert place(process.fault) == (2, "b", "nan")
            assert place(process.first_nonfinite) == (2, "b", "nan")
            assert process.run_up is None
            path.unlink(missing_ok=True)

    def test_where_the_summary_is_older_the_records_tell(self, tmp_path: Path) -> None:
        process = of_one(tmp_path / "out", [record(1), record(2, nans=1)], first_bad=None, status="running")
        assert place(process.fault) == (2, "a", "nan")
        assert process.running

    def test_of_the_two_the_earlier_counts(self, tmp_path: Path) -> None:
        short = {"layer": "b", "direction": "fwd", "kind": "inf", "matmul_calls_so_far": 0, "seq": 4}
        for step, expected in ((2, "b"), (3, "a"), (4, "a")):
            process = of_one(tmp_path / str(step), [record(3, seq=4, nans=1)], first_bad={**short, "step": step})
            assert process.fault is not None
            assert process.fault["layer"] == expected

    def test_out_of_range_is_bad_too(self, tmp_path: Path) -> None:
        process = of_one(tmp_path / "out", [record(1, oob_count=0), record(2, oob_count=3, bad=True)])
        assert place(process.fault) == (2, "a", "oob")

    def test_the_stock_loggers_files_are_read(self, tmp_path: Path) -> None:
        stock = [record(1), record(2, huge=1), record(2, "b", huge=1)]
        for number, entry in enumerate(stock):
            entry["t"] = float(number)
            for name in ("seq", "invocation", "module_path", "tensor_path", "role", "param_name", "batch_id"):
                del entry[name]
        short = {"step": 2, "layer": "a", "direction": "fwd", "kind": "huge", "matmul_calls_so_far": 9}
        directory = write(tmp_path / "out", {0: [record(1)]}, {0: {"first_bad": short}})
        lines = [{**entry, "rank": 0, "gpu": 0, "host": "h", "pid": 1} for entry in stock]
        (directory / "layers_rank0.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        (process,) = found_in(directory)[0].processes
        assert place(process.fault) == (2, "a", "huge")
        assert process.run_up is not None
        assert process.run_up.steps == (1,)

    def test_a_number_that_json_has_not_is_not_handed_on(self, tmp_path: Path) -> None:
        directory = write(tmp_path / "out", {0: [record(1, nans=1, high=123.5)]})
        path = directory / "layers_rank0.jsonl"
        path.write_text(path.read_text().replace("123.5", "1e999"))
        fault = found_in(directory)[0].processes[0].fault
        assert fault is not None
        assert fault["finite_abs_max"] is None


class TestByDesign:
    MASK = {"kind": "mask", "steps": 3, "first": {"step": 1}}

    @staticmethod
    def origin(step: int, stage: str = "backward") -> dict[str, Any]:
        place = {"module": "b", "layer_name": "w.b", "role": "igrad", "kind": "nan", "rank": 0, "tensor_path": ""}
        return {"step": step, "stage": stage, "reason": "so it is", "param_name": "", **place}

    def test_a_mask_does_not_count(self, tmp_path: Path) -> None:
        records = [record(1, infs=1), record(2, infs=1)]
        process = of_one(tmp_path / "out", records, origin=None, expected=[self.MASK])
        assert place(process.first) == (1, "a", "inf")
        assert (process.by_design, process.fault) == ("mask", None)

    def test_after_a_mask_the_origin_counts(self, tmp_path: Path) -> None:
        records = [
            record(step, "w.b", module_path="b", role="igrad", direction="bwd", high=2.0**step) for step in (1, 2)
        ]
        records.append(record(2, infs=1))
        process = of_one(tmp_path / "out", records, origin=self.origin(3), expected=[self.MASK])
        assert place(process.fault) == (3, "b", "nan")
        assert process.fault is not None
        assert process.fault["direction"] == "bwd"
        assert process.run_up is not None
        assert process.run_up.magnitudes == (2.0, 4.0)

    @pytest.mark.parametrize(
        "summary",
        [
            {"origin": None, "expected": []},  # nothing is known of a mask
            {"origin": None, "expected": [{**MASK, "first": {"step": 2}}]},  # the mask came later
            {"origin": None, "expected": [MASK], "status": "running"},  # it is not known yet
            {"expected": [MASK], "origin": {"step": 1}},  # this is the origin
        ],
    )
    def test_what_is_not_known_to_be_by_design_counts(self, tmp_path: Path, summary: dict[str, Any]) -> None:
        if summary.get("origin"):
            summary = {**summary, "origin": self.origin(1, "forward")}
        process = of_one(tmp_path / "out", [record(1, infs=1)], **summary)
        assert (place(process.fault), process.by_design) == ((1, "a", "inf"), "")

    def test_huge_is_never_by_design(self, tmp_path: Path) -> None:
        process = of_one(tmp_path / "out", [record(1, huge=1)], origin=None, expected=[self.MASK])
        assert place(process.fault) == (1, "a", "huge")


class TestSeveralRanks:
    def test_the_earliest_is_by_step_and_place_and_not_by_the_clock(self, tmp_path: Path) -> None:
        found = of_ranks(
            tmp_path / "out",
            {
                0: [record(3, nans=1, t=1.0)],
                1: [record(2, "b", seq=5, infs=1, t=99.0), record(2, seq=6, t=99.5)],
                2: [record(2, seq=4, infs=1, t=200.0)],
                3: [record(2)],
            },
            {rank: {"watched_names": ["a", "b"]} for rank in range(4)},
        )
        assert found.earliest is not None
        assert found.earliest.rank == 2
        assert [process.fault is not None for process in found.processes] == [True, True, True, False]

    def test_in_the_same_place_it_is_the_lowest_rank(self, tmp_path: Path) -> None:
        found = of_ranks(tmp_path / "out", {rank: [record(2, nans=1)] for rank in (5, 3, 4)})
        assert found.earliest is not None
        assert found.earliest.rank == 3

    def test_a_rank_whose_records_are_gone_is_placed_by_its_summary(self, tmp_path: Path) -> None:
        directory = write(tmp_path / "out", {0: [record(3, nans=1)], 1: [record(2, nans=1)]})
        (directory / "layers_rank1.jsonl").unlink()
        (found,) = found_in(directory)
        assert found.earliest is not None
        assert found.earliest.rank == 1

    def test_evaluations_are_not_counted(self, tmp_path: Path) -> None:
        ranks = {0: [record(9, nans=1, evaluation_steps=6)], 1: [record(5, nans=1)]}
        found = of_ranks(tmp_path / "out", ranks, {0: {"evaluation_steps": 6}})
        assert found.earliest is not None
        assert found.earliest.rank == 0
        assert found.covered == 3

    def test_an_earlier_attempt_comes_first_and_the_last_one_covers(self, tmp_path: Path) -> None:
        ranks = {0: [record(1, nans=1), record(9)], 1: [record(4, nans=1)]}
        found = of_ranks(tmp_path / "out", ranks, {0: {"restart": 1}})
        assert found.earliest is not None
        assert (found.earliest.rank, found.earliest.restart) == (1, 0)
        assert (found.covered, found.steps) == (4, 9)

    @settings(max_examples=20, deadline=None)
    @given(st.lists(st.lists(st.booleans(), max_size=5), min_size=1, max_size=4))
    def test_it_is_the_minimum_over_all_records(
        self, tmp_path_factory: pytest.TempPathFactory, ranks: list[list[bool]]
    ) -> None:
        written = {
            rank: [record(1 + n // 2, seq=n % 2, nans=int(bad)) for n, bad in enumerate(of_rank)]
            for rank, of_rank in enumerate(ranks)
        }
        found = of_ranks(tmp_path_factory.mktemp("ranks") / "out", written)
        bad = [
            (entry["step"], entry["seq"], rank) for rank, of in written.items() for entry in of if entry["nan_count"]
        ]
        earliest = found.earliest
        fault = earliest.fault if earliest is not None else None
        assert (fault and earliest and (fault["step"], fault["seq"], earliest.rank)) == min(bad, default=None)


class TestTrials:
    def test_one_without_evidence_says_why(self, tmp_path: Path) -> None:
        trial(tmp_path, "none-local", None, verdict="missing", passed=False)
        (found,) = found_in(tmp_path)
        assert (found.processes, found.earliest, found.verdict, found.passed) == ((), None, "missing", False)

    def test_trials_do_not_mix(self, tmp_path: Path) -> None:
        for index, step in enumerate((5, 3)):
            records = [*(record(n, high=float(n + index)) for n in range(step)), record(step, nans=1)]
            trial(tmp_path, "it's-local", {0: records}, index=index)
        found = found_in(tmp_path)
        assert [place(of.earliest.fault) for of in found if of.earliest] == [(5, "a", "nan"), (3, "a", "nan")]
        run_ups = [of.earliest.run_up for of in found if of.earliest]
        assert [run_up.magnitudes for run_up in run_ups if run_up] == [(0.0, 1.0, 2.0, 3.0, 4.0), (1.0, 2.0, 3.0)]

    def test_a_pruned_one_has_what_its_receipt_has_kept(self, tmp_path: Path) -> None:
        first = {"step": 4, "layer": "b", "direction": "bwd", "kind": "inf", "rank": 2, "attempt": 1}
        metrics = {f"layer_numerics_first_bad_{name}": value for name, value in first.items()}
        trial(tmp_path, "none-local", None, verdict="pruned", metrics={**metrics, "layer_numerics_steps": 9})
        (found,) = found_in(tmp_path)
        assert found.earliest is not None
        assert place(found.earliest.fault) == (4, "b", "inf")
        assert (found.earliest.rank, found.earliest.restart, found.covered) == (2, 1, 9)


def test_real_captures_say_what_their_summaries_say(captured: Callable[[str], Path]) -> None:
    for name, expected in {
        "clean": [None],
        "overflow": [(18, "over_arch.model.1", "huge"), None, None],
        "pipeline": [(4, "embedding_features", "nan")],
    }.items():
        found = found_in(captured(name))
        assert [place(of.earliest.fault) if of.earliest else None for of in found] == expected
    (pipeline,) = found
    assert pipeline.earliest is not None
    assert pipeline.earliest.fault is not None
    assert (pipeline.earliest.fault["batch_id"], pipeline.earliest.fault["phase"]) == (7, "copy")
