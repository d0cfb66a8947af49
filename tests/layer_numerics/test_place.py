"""Where processes write: no two of them ever get the same file, however close together they begin."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from aorta_collectors.layer_numerics.place import Place
from tests.support import PYTHON, run

PROCESSES = 4
ROUNDS = 25

#: Real processes of one rank, let loose together once for each directory. Each prints what it has claimed.
CLAIMING = f"""
import json, multiprocessing
from pathlib import Path
import torch.distributed
from aorta_collectors.layer_numerics.place import Place

context = multiprocessing.get_context("fork")
start = context.Barrier({PROCESSES})


def claim(index):
    claimed = []
    for round in range({ROUNDS}):
        start.wait(60)
        place = Place.claim(Path(f"round_{{round}}"), "the trial")
        claimed.append([str(place.records), str(place.summary), place.rank, place.warning])
    Path(f"claimed_{{index}}.json").write_text(json.dumps(claimed))


children = [context.Process(target=claim, args=(index,)) for index in range({PROCESSES})]
for child in children:
    child.start()
for child in children:
    child.join()
raise SystemExit(any(child.exitcode for child in children))
"""


@pytest.fixture(scope="module")
def claimed(tmp_path_factory: pytest.TempPathFactory) -> list[list[tuple[str, str, int, str]]]:
    """By process, what it claimed in each round."""
    directory = tmp_path_factory.mktemp("claims")
    run([PYTHON, "-c", CLAIMING], directory, {"RANK": "3"}).ok()
    return [
        [tuple(entry) for entry in json.loads((directory / f"claimed_{index}.json").read_text())]
        for index in range(PROCESSES)
    ]


def test_processes_that_begin_at_once_share_no_file(claimed: list[list[tuple[str, str, int, str]]]) -> None:
    for kind in (0, 1):
        files = Counter(entry[kind] for process in claimed for entry in process)
        assert [file for file, claims in files.items() if claims > 1] == []
        assert len(files) == PROCESSES * ROUNDS


def test_each_process_keeps_its_rank_and_has_a_pair_of_files(claimed: list[list[tuple[str, str, int, str]]]) -> None:
    for records, summary, rank, warning in (entry for process in claimed for entry in process):
        assert (rank, warning) == (3, "")
        stem = Path(records).stem.removeprefix("layers_")
        assert Path(summary).name == f"summary_{stem}.json"
        assert stem == "rank3" or stem.startswith("rank3_")


def test_one_of_them_has_the_plain_name(claimed: list[list[tuple[str, str, int, str]]]) -> None:
    """Which is what readers of a run with one process look for."""
    plain = Counter(
        Path(entry[1]).parent for process in claimed for entry in process if entry[1].endswith("rank3.json")
    )
    assert sorted(plain.values()) == [1] * ROUNDS


def test_a_process_that_begins_when_another_has_ended_does_not_overwrite_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process id may have come round again, or be the same in two containers that share the directory."""
    monkeypatch.setenv("RANK", "0")
    first = Place.claim(tmp_path, "the trial")
    first.summary.write_text(json.dumps({"run_id": "the trial", "pid": 1}))
    first.records.write_text("{}\n")
    second = Place.claim(tmp_path, "the trial")
    assert second.summary != first.summary
    assert second.records != first.records
