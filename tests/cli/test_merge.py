"""`aorta-collectors merge`: the records of all ranks in one order, from wherever a person finds them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.evidence.damage import edit_records, second_rank
from tests.support import PYTHON, TRAIN, Ran, run


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a run of two steps leaves, as if by two ranks: rank 1's values are bad from the first on, rank 0's never."""
    directory = tmp_path_factory.mktemp("merge")
    (directory / "train.py").write_text(TRAIN)
    env = {"NANLOG_DIR": "out", "NANLOG_SAMPLE_EVERY": "1"}
    run([PYTHON, "-m", "aorta_collectors.layer_numerics", "train.py", "--steps", "2"], directory, env).ok()
    second_rank(directory / "out")
    edit_records(directory / "out", lambda lines: [line.update(bad=True) for line in lines], 1)
    return directory / "out"


@pytest.fixture
def out(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(written, tmp_path / "out"))


def merge(path: Path, *options: str) -> Ran:
    return run(["aorta-collectors", "merge", str(path), *options], path.parent)


def lines(ran: Ran) -> list[dict[str, Any]]:
    return [json.loads(line) for line in ran.ok().out.splitlines()]


def test_every_record_is_printed_by_step_and_place_and_rank(out: Path) -> None:
    found = lines(merge(out))
    places = [(record["restart"], record["step"], record["seq"], record["rank"]) for record in found]
    assert places == sorted(places)
    written = [json.loads(line) for rank in (0, 1) for line in (out / f"layers_rank{rank}.jsonl").open()]
    assert len(found) == len(written) > 8
    assert all({key: value for key, value in record.items() if key != "restart"} in written for record in found)


def test_the_first_so_many_and_the_earliest_bad_one(out: Path) -> None:
    found = lines(merge(out, "--first", "3"))
    assert [record["rank"] for record in found] == [0, 1, 0]
    assert lines(merge(out, "--first-bad")) == [found[1]]
    for path in out.glob("*rank1*"):
        path.unlink()
    ran = merge(out, "--first-bad").ok()
    assert (ran.out, ran.err) == ("", "no bad record\n")


def test_a_trials_directory_and_its_record_are_understood(out: Path, tmp_path: Path) -> None:
    trial = tmp_path / "trial_d0_m0_t0"
    out.rename(trial)
    inside = lines(merge(trial, "--first", "2"))
    (tmp_path / "artifacts").mkdir()
    trial.rename(tmp_path / "artifacts" / "layer_numerics")
    (tmp_path / "artifacts").rename(trial)
    trial.with_suffix(".json").write_text("{}")
    for path in (trial, trial.with_suffix(".json"), trial / "layer_numerics"):
        assert lines(merge(path, "--first", "2")) == inside


def test_what_cannot_be_merged_is_one_line(out: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    ran = merge(empty)
    assert (ran.code, ran.out) == (1, "")
    assert f"neither {empty} nor {empty / 'layer_numerics'} holds a summary_rank<N>.json" in ran.err
    (out / "layers_rank1.jsonl").write_text("nothing\n")
    ran = merge(out)
    assert ran.code == 1
    assert "layers_rank1.jsonl: line 1 is no record" in ran.err
    (empty / "layer_numerics").symlink_to(out)
    ran = merge(empty)
    assert (ran.code, "symbolic link" in ran.err) == (1, True)
    assert "Traceback" not in ran.err
