"""Where processes write: no two of them ever get the same file, however close together they begin."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import pytest

from aorta_collectors.artifacts.summaries import SUMMARY
from aorta_collectors.observe.process.names import ProcessNames
from aorta_collectors.observe.process.place import Place, is_helper
from aorta_collectors.observe.process.standalone import StandaloneLaunch
from tests.support import PYTHON, run

PROCESSES = 4
ROUNDS = 25
NAMES = ProcessNames("records", "SOME_RUN_ID", "SOME_DIR", "some_out")

#: Real processes of one rank, let loose together once for each directory. Each prints what it has claimed. Those of a
#: standalone launch write their summaries, while the others are still choosing, over what another launch has left.
CLAIMING = f"""
import json, multiprocessing, sys
from pathlib import Path
import torch.distributed
from aorta_collectors.observe.process.names import ProcessNames
from aorta_collectors.observe.process.place import Place
from aorta_collectors.observe.process.standalone import StandaloneLaunch

names = {NAMES!r}
alone = sys.argv[1] == "launch"
launch = StandaloneLaunch("this", 1, "/") if alone else None
context = multiprocessing.get_context("fork")
start = context.Barrier({PROCESSES})


def claim(index):
    claimed = []
    for round in range({ROUNDS}):
        directory = Path(f"round_{{round}}")
        if alone:
            directory.mkdir(exist_ok=True)
            if index == 0:
                (directory / "summary_rank3.json").write_text(json.dumps({{"run_id": "another"}}))
        start.wait(60)
        place = Place.claim(names, directory, None if alone else "the trial", launch)
        place.summary.write_text(json.dumps({{"run_id": place.run_id}}))
        place.settle()
        claimed.append([str(place.records), str(place.summary), place.rank, place.warning])
    Path(f"claimed_{{index}}.json").write_text(json.dumps(claimed))


children = [context.Process(target=claim, args=(index,)) for index in range({PROCESSES})]
for child in children:
    child.start()
for child in children:
    child.join()
raise SystemExit(any(child.exitcode for child in children))
"""


#: One of two ranks, in a trial where the other one left a summary.
GROUPED = f"""
from pathlib import Path
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore
from aorta_collectors.observe.process.names import ProcessNames
from aorta_collectors.observe.process.names import ProcessNames
from aorta_collectors.observe.process.place import Place, is_helper

here = Path()
(here / "summary_rank0.json").write_text("{{}}")
assert is_helper(here, "t", None)
dist.init_process_group("fake", store=FakeStore(), rank=1, world_size=2)
assert not is_helper(here, "t", None)
assert Place.claim({NAMES!r}, here, "t").rank == 1
"""


@pytest.fixture(scope="module", params=["trial", "launch"])
def claimed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> list[list[tuple[str, str, int, str]]]:
    """By process, what it claimed in each round."""
    directory = tmp_path_factory.mktemp("claims")
    run([PYTHON, "-c", CLAIMING, request.param], directory, {"RANK": "3"}).ok()
    assert list(directory.glob("round_*/.*")) == []
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
        stem = Path(records).stem.removeprefix("records_")
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
    first = Place.claim(NAMES, tmp_path, "the trial")
    first.summary.write_text(json.dumps({"run_id": "the trial", "pid": 1}))
    first.records.write_text("{}\n")
    others = [Place.claim(NAMES, tmp_path, "the trial") for _ in range(3)]
    assert len({place.summary for place in (first, *others)}) == 4
    assert len({place.records for place in (first, *others)}) == 4
    assert others[0].stem == f"rank0_p{os.getpid()}"
    assert all(SUMMARY.match(place.summary.name) for place in others)


class TestAlone:
    """Files of a standalone launch, and those that others have left in its directory."""

    @pytest.fixture(autouse=True)
    def rank(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("RANK", "0")

    def place(self, directory: Path, run_id: str) -> Place:
        """Of a process that has written its summary."""
        place = Place.claim(NAMES, directory, None, StandaloneLaunch(run_id, os.getpid(), "/"))
        place.summary.write_text(json.dumps({"run_id": place.run_id}))
        place.settle()
        return place

    def test_a_second_launch_takes_the_names_of_the_first(self, tmp_path: Path) -> None:
        first, second = self.place(tmp_path, "a"), self.place(tmp_path, "b")
        assert (first.records, first.summary) == (second.records, second.summary)
        assert second.summary.name == "summary_rank0.json"

    def test_a_second_process_of_a_launch_does_not(self, tmp_path: Path) -> None:
        first, second = self.place(tmp_path, "a"), self.place(tmp_path, "a")
        assert first.summary.name == "summary_rank0.json"
        assert second.summary.name == f"summary_rank0_p{os.getpid()}.json"

    def test_it_does_not_before_the_first_has_written_anything_either(self, tmp_path: Path) -> None:
        launch = StandaloneLaunch("a", os.getpid(), "/")
        assert Place.claim(NAMES, tmp_path, None, launch).summary != Place.claim(NAMES, tmp_path, None, launch).summary

    @pytest.mark.parametrize("content", ["", "{", "[]", '{"run_id": 3}', '{"rank": 0}', "\ufffe"])
    def test_a_summary_that_says_of_no_launch_is_replaced(self, tmp_path: Path, content: str) -> None:
        (tmp_path / "summary_rank0.json").write_text(content)
        assert self.place(tmp_path, "a").summary.name == "summary_rank0.json"

    def test_armed_by_hand_a_process_takes_the_plain_names(self, tmp_path: Path) -> None:
        for _ in range(2):
            place = Place.claim(NAMES, tmp_path, None)
            assert (place.summary.name, place.run_id) == ("summary_rank0.json", None)
            place.settle()

    def test_what_earlier_launches_left_is_told_by_rank_0(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Whatever the clock says: it may have been set back since they were written."""
        for name, run_id in (("rank2", "old"), ("rank0_p1", "old"), ("rank5", "b"), ("rank6", "c")):
            path = tmp_path / f"summary_{name}.json"
            path.write_text(json.dumps({"run_id": run_id}))
            os.utime(path, (path.stat().st_mtime + 3600,) * 2)
        place = self.place(tmp_path, "b")
        # Another machine's ranks have another id, and write while this one runs.
        (tmp_path / "summary_rank6.json").write_text('{"run_id": "c"}')
        (tmp_path / "summary_rank7.json").write_text('{"run_id": "c"}')
        assert place.left_over() == ["summary_rank0_p1.json", "summary_rank2.json"]
        monkeypatch.setenv("RANK", "1")
        assert self.place(tmp_path, "b").left_over() == []

    def test_who_is_a_helper(self, tmp_path: Path) -> None:
        parent, child = StandaloneLaunch("a", os.getpid(), "/"), StandaloneLaunch("a", os.getppid(), "/")
        assert is_helper(tmp_path, None, child)
        assert not any(
            is_helper(tmp_path, trial, launch) for trial, launch in ((None, None), (None, parent), ("t", child))
        )
        self.place(tmp_path, "b")
        assert not any(is_helper(tmp_path, None, launch) for launch in (None, parent))
        assert is_helper(tmp_path, "t", None)
        self.place(tmp_path, "a")
        assert is_helper(tmp_path, None, parent)

    def test_a_rank_that_only_its_process_group_knows_is_no_helper(self, tmp_path: Path) -> None:
        """As of torch.multiprocessing.spawn, whose processes have no RANK."""
        run([PYTHON, "-c", GROUPED], tmp_path).ok()
