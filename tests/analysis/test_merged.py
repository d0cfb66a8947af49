"""The records of several ranks in one order: the same whichever files they are in, and a line at a time."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aorta_collectors.analysis.merged import first_bad, merged
from aorta_collectors.errors import ArtifactError

Record = dict[str, Any]

#: What every summary has.
COMPLETE: dict[str, Any] = {
    "rank": 0,
    "host": "here",
    "pid": 1,
    "steps_seen": 1,
    "records_written": 1,
    "first_bad": None,
    "watched_count": 1,
    "watched_names": ["a"],
    "channels": ["act"],
    "jsonl": "layers_rank0.jsonl",
}


class Memory:
    """Artifacts that are nowhere: a summary and records for each stem."""

    def __init__(self, processes: Mapping[str, tuple[Mapping[str, Any], Callable[[], Iterator[bytes]]]]) -> None:
        self._summaries = {f"summary_{stem}.json": summary for stem, (summary, _) in processes.items()}
        self._records = {f"layers_{stem}.jsonl": lines for stem, (_, lines) in processes.items()}

    def sizes(self) -> Mapping[str, int]:
        return dict.fromkeys([*self._summaries, *self._records], 1)

    def read(self, name: str, limit_bytes: int = 0) -> bytes:
        return json.dumps(self._summaries[name]).encode()

    def lines(self, name: str) -> Iterator[bytes]:
        return self._records[name]()


def of_ranks(*ranks: Sequence[Record], summaries: Sequence[Mapping[str, Any]] = ()) -> Memory:
    """The records of ranks 0, 1, ... as they would write them."""
    processes = {}
    for rank, records in enumerate(ranks):
        more = summaries[rank] if summaries else {}
        lines = [json.dumps({**record, "rank": rank}).encode() + b"\n" for record in records]
        processes[f"rank{rank}"] = ({**COMPLETE, "rank": rank, **more}, partial(iter, lines))
    return Memory(processes)


def record(step: int, seq: int, bad: bool = False, direction: str = "fwd", **more: Any) -> Record:
    return {"step": step, "seq": seq, "bad": bad, "direction": direction, **more}


#: What a process writes: its steps in order, and of each step some records in order.
PROCESS = st.sets(st.tuples(st.integers(1, 5), st.integers(0, 5))).map(
    lambda places: [record(step, seq) for step, seq in sorted(places)]
)
PLACE = ("step", "seq")


class TestOrder:
    @given(st.lists(PROCESS, min_size=1, max_size=5), st.randoms(use_true_random=False))
    @settings(deadline=None)
    def test_it_is_by_step_and_place_and_then_rank_whichever_rank_wrote_what(
        self, processes: list[list[Record]], shuffler: Any
    ) -> None:
        every = sorted((entry["step"], entry["seq"], rank) for rank, of in enumerate(processes) for entry in of)
        found = list(merged(of_ranks(*processes)))
        assert [(entry["step"], entry["seq"], entry["rank"]) for entry in found] == every
        shuffled = list(processes)
        shuffler.shuffle(shuffled)
        again = [tuple(entry[key] for key in PLACE) for entry in merged(of_ranks(*shuffled))]
        assert again == [place[:2] for place in every]

    @given(st.lists(PROCESS, min_size=1, max_size=4))
    @settings(deadline=None)
    def test_the_earliest_bad_record_is_the_first_bad_one_of_it(self, processes: list[list[Record]]) -> None:
        processes = [
            [{**entry, "bad": (entry["step"] + entry["seq"]) % 4 == 3} for entry in process] for process in processes
        ]
        artifacts = of_ranks(*processes)
        bad = [entry for entry in merged(artifacts) if entry["bad"]]
        assert first_bad(artifacts) == (bad[0] if bad else None)

    @given(st.lists(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3))), min_size=1, max_size=3))
    @settings(deadline=None)
    def test_what_is_below_in_a_file_stays_below_whatever_it_says(self, places: list[list[tuple[int, int]]]) -> None:
        processes = [
            [record(step, seq, number=number) for number, (step, seq) in enumerate(process)] for process in places
        ]
        found = list(merged(of_ranks(*processes)))
        for rank, process in enumerate(processes):
            assert [entry["number"] for entry in found if entry["rank"] == rank] == list(range(len(process)))

    def test_an_attempt_comes_whole_before_the_next(self) -> None:
        artifacts = of_ranks([record(1, 0), record(9, 0)], [record(2, 0)], summaries=[{"restart": 1}, {"restart": 0}])
        assert [(entry["restart"], entry["step"]) for entry in merged(artifacts)] == [(0, 2), (1, 1), (1, 9)]

    def test_stages_of_a_pipeline_are_compared_by_the_part_of_the_step(self) -> None:
        first = [record(1, 3), record(1, 4, direction="bwd"), record(1, 5, direction="fwd", recompute=True)]
        second = [record(1, 0, direction="param"), record(1, 1), record(1, 2, direction="bwd")]
        alike = of_ranks(first, second, summaries=[{"watched_names": ["a"]}, {"watched_names": ["a"]}])
        assert [entry["seq"] for entry in merged(alike)] == [0, 1, 2, 3, 4, 5]
        differing = of_ranks(first, second, summaries=[{"watched_names": ["a"]}, {"watched_names": ["b"]}])
        # Forward from the first stage to the last, backward from the last to the first.
        assert [entry["seq"] for entry in merged(differing)] == [0, 3, 1, 2, 4, 5]

    def test_a_rank_that_evaluates_alone_is_lined_up_by_its_training_steps(self) -> None:
        trains = [record(step, 0) for step in (1, 2, 3)]
        evaluates = [
            record(1, 0),
            *(record(step, 0, evaluation=True, evaluation_steps=step - 1) for step in (2, 3)),
            record(4, 0, evaluation_steps=2),
            record(5, 0, evaluation_steps=2),
        ]
        found = [(entry["step"], entry["rank"]) for entry in merged(of_ranks(trains, evaluates))]
        assert found == [(1, 0), (1, 1), (2, 1), (3, 1), (2, 0), (4, 1), (3, 0), (5, 1)]

    def test_a_bad_record_that_was_not_written_is_known_from_the_summary(self) -> None:
        cut = {"step": 3, "layer": "a", "direction": "fwd", "kind": "nan", "matmul_calls_so_far": 4, "seq": 2}
        summaries: list[Record] = [{"first_bad": cut}, {"first_bad": None}]
        artifacts = of_ranks([record(1, 0)], [record(5, 0, bad=True)], summaries=summaries)
        found = first_bad(artifacts)
        assert found is not None
        assert (found["step"], found["layer_name"], found["rank"], found["bad"]) == (3, "a", 0, True)

    def test_records_without_a_place_stand_as_in_their_file(self) -> None:
        """The stock logger's have no seq."""
        lines = [{"step": 1, "bad": False, "direction": "fwd", "number": number} for number in range(3)]
        found = [(entry["number"], entry["rank"]) for entry in merged(of_ranks(lines, lines))]
        assert found == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]


class TestReading:
    def test_a_line_of_each_file_is_read_at_a_time(self) -> None:
        read = [0, 0]

        def endless(rank: int) -> Iterator[bytes]:
            for step in itertools.count(1):
                read[rank] += 1
                yield json.dumps({**record(step, 0, bad=step == 50), "rank": rank}).encode() + b"\n"

        artifacts = Memory({f"rank{rank}": ({**COMPLETE, "rank": rank}, partial(endless, rank)) for rank in (0, 1)})
        found = first_bad(artifacts)
        assert found is not None
        assert (found["step"], found["rank"]) == (50, 0)
        assert max(read) <= 51

    def test_a_torn_last_line_ends_a_file(self) -> None:
        lines = [json.dumps(record(1, 0)).encode() + b"\n", b'{"step": 2, "se']
        artifacts = Memory({"rank0": (COMPLETE, lambda: iter(lines))})
        assert [entry["step"] for entry in merged(artifacts)] == [1]

    @pytest.mark.parametrize(
        "line",
        [b"{", b"[]", b"{}", b'{"step": "1", "bad": true}', b'{"step": 1}', b'{"step": 1, "bad": 0, "seq": null}'],
    )
    def test_a_line_that_is_no_record_is_named(self, line: bytes) -> None:
        lines = [json.dumps(record(1, 0)).encode() + b"\n", line + b"\n"]
        artifacts = Memory({"rank0": (COMPLETE, lambda: iter(lines))})
        with pytest.raises(ArtifactError, match=r"layers_rank0\.jsonl: line 2 is no record"):
            list(merged(artifacts))

    @pytest.mark.parametrize("summary", [{}, {"rank": "0"}, {"rank": 0, "restart": "x"}])
    def test_a_summary_that_is_none_is_named(self, summary: dict[str, Any]) -> None:
        with pytest.raises(ArtifactError, match=r"summary_rank0\.json"):
            list(merged(Memory({"rank0": (summary, lambda: iter(()))})))
