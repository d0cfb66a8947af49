"""The command overlap: what a person sees, what a machine reads, and what it exits with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from aorta_collectors.cli import main
from tests.captured.synthetic import record, write
from tests.support import run

WHERE = {"data_ptr": "0x7f0000", "storage_ptr": "0x7f0000", "storage_offset_bytes": 0, "storage_nbytes": 32}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    lines = [record(2, "scratch", **WHERE), record(2, "bad\x1b[2J", seq=1, nans=3, **WHERE)]
    return write(tmp_path / "d", {0: lines})


def test_it_shows_the_bad_tensor_and_what_lay_there(directory: Path, tmp_path: Path) -> None:
    ran = run(["aorta-collectors", "overlap", "d"], tmp_path).ok()
    assert "rank 0: step 2, fwd bad\\x1b[2J act holds 3 NaN, abs max 1" in ran.out
    assert "1 of 1 other records overlap it:" in ran.out
    assert "2  before     32  fwd scratch act  abs max 1" in ran.out
    assert "Nothing is recorded of the step before" in ran.out
    assert "no proof" in ran.out


def test_json_says_the_same(directory: Path, tmp_path: Path) -> None:
    target = tmp_path / "o.json"
    assert CliRunner().invoke(main, ["overlap", str(directory), "--json", "-o", str(target)]).exit_code == 0
    (bad,) = json.loads(target.read_text())
    (overlap,) = bad["overlaps"]
    assert (overlap["record"]["layer"], overlap["relation"], overlap["num_bytes"]) == ("scratch", "same bytes", 32)


@pytest.mark.parametrize(("words", "code"), [([], 0), (["--exit-code"], 3), (["--exit-code", "--step", "1"], 0)])
def test_it_exits_with_3_where_that_was_asked_for_and_something_overlaps(
    directory: Path, words: list[str], code: int
) -> None:
    assert CliRunner().invoke(main, ["overlap", str(directory), *words]).exit_code == code


def test_without_addresses_it_fails_and_names_the_option(tmp_path: Path) -> None:
    ran = CliRunner().invoke(main, ["overlap", str(write(tmp_path / "d", {0: [record(1, nans=1)]}))])
    assert ran.exit_code == 1
    assert "NANLOG_ADDR=1" in ran.stderr
