"""A pipelined torchrec program through the command line, alone and on two ranks: the batch that goes bad, and where."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.corpus.runs import Forks
from tests.support import ROOT, records, run, summary

PROGRAM = str(ROOT / "recipes" / "pipeline_corruption.py")
SPEC = json.dumps(
    {
        "follow": [{"tensor": "embedding_features", "stages": True, "bounds": [0, 60]}],
        "pre_context": 3,
        "sample_every": 1,
    }
)
STAGES = ["copy", "sparse_start", "sparse_wait", "forward"]


FOLLOWED = ["-m", "aorta_collectors.layer_numerics", PROGRAM]
OPTIONS = {"NANLOG_DIR": "out", "NANLOG_SPEC": SPEC}


def _batch(directory: Path, number: int, rank: int = 0) -> list[dict[str, Any]]:
    lines = records(directory / "out" / f"layers_rank{rank}.jsonl")
    return [record for record in lines if record["batch_id"] == number]


@pytest.mark.parametrize(
    ("when", "bad_from"), [("copy", 0), ("wait", 2)], ids=["as it reaches the device", "while it is distributed"]
)
def test_a_nan_is_seen_from_the_stage_on_at_which_it_was_written(
    when: str, bad_from: int, torchrec_forks: Forks, tmp_path: Path
) -> None:
    env = {"CORRUPT": when, "VALUE": "nan"}
    ran = torchrec_forks.run(FOLLOWED, tmp_path, {**OPTIONS, **env}).ok()
    assert ran.out == torchrec_forks.run([PROGRAM], tmp_path, env).ok().out
    seen = _batch(tmp_path, 7)
    assert [record["phase"] for record in seen] == STAGES
    assert [record["nan_count"] for record in seen] == [int(place >= bad_from) for place in range(4)]
    found = summary(tmp_path / "out")
    assert found["first_bad"]["batch_id"] == 7
    assert found["first_bad"]["phase"] == STAGES[bad_from]
    assert found["first_bad"]["kind"] == "nan"
    assert found["first_oob"] is None  # a NaN is not out of range, it is no number
    assert found["hook_errors"] == 0
    for number in range(1, 7):
        assert [record["phase"] for record in _batch(tmp_path, number)] == STAGES
        assert not any(record["bad"] for record in _batch(tmp_path, number))


def test_each_of_two_ranks_follows_its_own_batches(tmp_path: Path) -> None:
    torchrun = ["torchrun", "--standalone", "--nproc-per-node", "2"]
    run([*torchrun, *FOLLOWED], tmp_path, {**OPTIONS, "CORRUPT": "copy", "VALUE": "61"}).ok()
    for rank in (0, 1):
        found = summary(tmp_path / "out", rank)
        assert found["world_size"] == 2
        assert found["first_oob"]["batch_id"] == 7
        assert found["first_oob"]["phase"] == "copy"
        assert found["pipeline_checkpoints"] == 30
        assert found["forward_checkpoints"] == 10
        assert [record["phase"] for record in _batch(tmp_path, 7, rank)] == STAGES
        assert found["peak_finite_max"] == 61.0
