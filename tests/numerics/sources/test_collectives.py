"""Collectives of two ranks over gloo."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import torch
import torch.distributed as dist

from aorta_collectors.numerics.sources.collectives import CollectiveSource
from aorta_collectors.numerics.spans.causal import causal_clocks
from aorta_collectors.schema_check import load_schema
from tests.numerics.driving import timeline
from tests.support import ROOT, run


def test_compiled_code_is_what_it_was() -> None:
    from torch.distributed import _functional_collectives

    before = dict(_functional_collectives.traceable_collective_remaps)
    source = CollectiveSource(timeline(), pytest.fail)
    source.start()

    @torch.compile(backend="eager", fullgraph=True)
    def doubled(inputs: torch.Tensor) -> torch.Tensor:
        result = inputs * 2
        dist.all_reduce(result)
        return result

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        assert doubled(torch.ones(3)).tolist() == [2.0, 2.0, 2.0]
    finally:
        dist.destroy_process_group()
        source.stop()
    assert before == _functional_collectives.traceable_collective_remaps


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    out = tmp_path_factory.mktemp("ranks")
    launches = [["python", "-m", "tests.numerics.sources.ranks", str(out), str(rank)] for rank in range(2)]
    with ThreadPoolExecutor() as threads:
        for ran in threads.map(partial(run, cwd=ROOT), launches):
            ran.ok()
    return [json.loads(Path(out / f"{rank}.json").read_text()) for rank in range(2)]


def test_each_operation_has_its_bytes(ranks: list[dict[str, Any]]) -> None:
    for told in ranks:
        assert [(name, attributes["bytes"]) for name, _, _, attributes in told["calls"][:10]] == [
            ("all_reduce", 8),
            ("broadcast", 8),
            ("all_gather", 8),
            ("all_gather", 8),
            ("reduce_scatter", 16),
            ("all_to_all", 16),
            ("reduce", 8),
            ("gather", 8),
            ("scatter", 8),
            ("barrier", 0),
        ]
        assert {name for name, *_ in told["calls"][10:]} == {"all_gather"}
        assert all(kind == "collective" and seconds >= 0 for _, kind, seconds, _ in told["calls"])
        assert told["warned"] == []
        assert told["undone"]


def test_ranks_agree_on_the_number_within_a_group(ranks: list[dict[str, Any]]) -> None:
    for part in ("calls", "async", "group"):
        numbers = [[(a["group"], a["sequence"]) for *_, a in told[part]] for told in ranks]
        assert numbers[0] == numbers[1]
    for told in ranks:
        assert [a["sequence"] for *_, a in told["calls"]] == list(range(len(told["calls"])))
        groups = [(a["group"], a["sequence"]) for *_, a in told["group"]]
        assert groups[0][0] == groups[1][0] != groups[2][0] == "default"
        assert [sequence for _, sequence in groups[:2]] == [0, 1]
    meetings = [
        [(clock, (a["group"], a["sequence"])) for clock, (*_, a) in enumerate(told["calls"], 1 + 50 * rank)]
        for rank, told in enumerate(ranks)
    ]
    clocks = causal_clocks(meetings)
    assert clocks[0] == clocks[1]


def test_an_asynchronous_one_lasts_until_it_was_waited_for(ranks: list[dict[str, Any]]) -> None:
    waited, forgotten = ranks[0]["async"]  # the other rank came later
    assert (waited[0], waited[3]["timed"]) == ("all_reduce", "wait")
    assert 0.1 < waited[2] < 5
    assert (forgotten[3]["timed"], forgotten[3]["bytes"]) == ("call", 32)
    assert forgotten[2] < waited[2]


def test_a_name_that_was_bound_before_is_missed(ranks: list[dict[str, Any]]) -> None:
    assert ranks[0]["missed"] == []


def test_gradients_of_ddp(ranks: list[dict[str, Any]]) -> None:
    size = 4 * (64 * 64 + 64 + 64 + 1)
    for told in ranks:
        assert told["ddp"]["loss"] == told["loss"]
        total = told["ddp"]["total"]
        assert (total["operation"], total["bytes"]) == ("all_reduce", 4 * size)
        assert total["calls"] >= 4
        assert total["total_us"] > 0
        # The last pass is told of when the next forward begins, and there is none.
        spans = [one for one in told["ddp"]["spans"] if one[3].get("source") == "ddp"]
        assert [(name, attributes["bytes"]) for name, _, _, attributes in spans] == [("all_reduce", size)] * 3


def test_those_of_ddp_that_no_module_shows(ranks: list[dict[str, Any]]) -> None:
    shown, hidden, other = 4 * (16 + 4), 4 * (32 + 8), 4 * (8 + 2)
    for told in ranks:
        found = told["hidden"]
        expected = [[3, other], *([step, size] for step in (1, 2, 3) for size in (shown, hidden))]
        assert sorted(found["spans"]) == sorted(expected)
        assert found["bytes"] == 4 * (shown + hidden) + 2 * other
        assert found["us"] > 0


def test_the_summary_adds_them_up(ranks: list[dict[str, Any]]) -> None:
    schema = load_schema("numerics.summary")["properties"]["collectives"]
    for told in ranks:
        jsonschema.validate(told["collectives"], schema)
        totals = {one["operation"]: one for one in told["collectives"] if one["source"] == "call"}
        assert totals["all_to_all"]["calls"] == 1
        assert totals["all_to_all"]["bytes"] == 16
        assert totals["all_gather"]["calls"] >= 4
        assert totals["all_reduce"]["total_us"] > 0
