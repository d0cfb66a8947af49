"""Symbolic links in a results tree, put there by the program or by anybody: nothing is read or written through them."""

from __future__ import annotations

import json
import os
import shutil
import threading
from pathlib import Path

import pytest

from aorta_collectors.api import Verdict
from aorta_collectors.errors import ArtifactError
from aorta_collectors.evidence.run import Finding, receipts_of, verify_run
from aorta_collectors.registry import load_collector
from tests.faults.spoiled import CELL, NAMES, TRIALS, Run, state
from tests.host.support import Sweep, mitigations, once, probe_recipe, sweep_command
from tests.support import run


def swap(path: Path) -> Path:
    """Move a file or folder out of the run, and leave a link to it. Everything that it holds is good evidence."""
    outside = path.parents[len(path.parts) - 1 - path.parts.index("run")] / "outside"
    outside.mkdir(exist_ok=True)
    path.rename(outside / path.name)
    path.symlink_to(outside / path.name)
    return outside


def findings_of(run_dir: Path) -> dict[str, Finding]:
    """By the number of the trial, or "-"."""
    return {finding.trial.rpartition("_t")[2]: finding for finding in verify_run(run_dir, NAMES, load_collector)}


class TestOneTrial:
    """Its own evidence does not count, and that of all others does."""

    @pytest.mark.parametrize(
        ("which", "verdict", "message"),
        [
            ("trial", "invalid", "trial_d0_m0_t1 is a symbolic link, which is not followed"),
            ("artifacts", "invalid", "layer_numerics is a symbolic link, which is not followed"),
            ("summary", "incomplete", "rank"),
            ("records", "invalid", "layers_rank1.jsonl is missing"),
            ("receipt", "invalid", "receipt_d0_m0_t1_layer_numerics.json is a symbolic link, which is not followed"),
            ("record", "invalid", "trial_d0_m0_t1.json: a symbolic link, which is not followed"),
        ],
    )
    def test_a_link_in_place_of(self, spoilt: Run, which: str, verdict: str, message: str) -> None:
        path: Path = spoilt.trial.with_suffix(".json") if which == "record" else getattr(spoilt, which)
        outside = swap(path)
        before = state(outside)
        found, reason = spoilt.later()
        assert (found, message in reason) == (verdict, True), reason
        if which in ("trial", "artifacts", "summary", "records"):
            assert spoilt.at_the_end()[0] == verdict
        assert state(outside) == before

    def test_a_receipt_that_names_a_place_outside(self, spoilt: Run) -> None:
        outside = spoilt.run_dir.parent / "outside"
        shutil.copytree(spoilt.artifacts, outside)
        for place in (str(outside), "../../../../outside", "trial_d0_m0_t1/../../../../../outside"):
            spoilt.edit(spoilt.receipt, artifacts=place)
            verdict, reason = spoilt.later()
            assert verdict == "invalid"
            assert "leaves" in reason or "does not lie below" in reason

    def test_a_chain_and_a_loop_of_links(self, spoilt: Run) -> None:
        shutil.rmtree(spoilt.trial)
        spoilt.trial.symlink_to(spoilt.trial.name)
        assert spoilt.later()[0] == "invalid"
        spoilt.trial.unlink()
        spoilt.trial.symlink_to("other")
        (spoilt.cell / "other").symlink_to("trial_d0_m0_t0")
        assert spoilt.later()[0] == "invalid"


class TestAboveTheTrials:
    @pytest.mark.parametrize("folder", [CELL, CELL.parent, CELL.parent.parent])
    def test_a_linked_folder_is_missed_by_the_ledger(self, spoilt: Run, folder: Path) -> None:
        before = state(swap(spoilt.run_dir / folder))
        found = findings_of(spoilt.run_dir)
        assert {finding.verdict for finding in found.values()} == {Verdict.MISSING}
        assert len(found) == TRIALS
        if "cell0" in folder.parts:
            assert f"{folder} is a symbolic link, which is not followed" in found["1"].reason
        ran = run(["aorta-collectors", "verify", str(spoilt.run_dir)], spoilt.run_dir)
        assert (ran.code, f"symbolic link(s) not followed, such as {spoilt.run_dir / folder}" in ran.err) == (1, True)
        assert state(spoilt.run_dir.parent / "outside") == before

    def test_a_linked_ledger_is_told(self, spoilt: Run) -> None:
        swap(spoilt.run_dir / "evidence.json")
        found = findings_of(spoilt.run_dir)
        assert [found[index].verdict for index in "012"] == [Verdict.CAPTURED] * 3
        assert found["-"].verdict is Verdict.INVALID
        assert "evidence.json: a symbolic link, which is not followed" in found["-"].reason

    def test_the_run_directory_itself_may_be_the_operators_link(self, spoilt: Run) -> None:
        link = spoilt.run_dir.parent / "latest"
        link.symlink_to(spoilt.run_dir)
        assert {finding.verdict for finding in findings_of(link).values()} == {Verdict.CAPTURED}
        link.unlink()
        link.symlink_to("nowhere")
        with pytest.raises(ArtifactError, match="is not a directory"):
            verify_run(link, NAMES, load_collector)

    def test_links_beside_the_trials_do_no_harm(self, spoilt: Run) -> None:
        (spoilt.run_dir / "up").symlink_to("..")
        (spoilt.cell / "again").symlink_to(".")
        (spoilt.cell / "root").symlink_to("/")
        assert [finding.verdict for finding in findings_of(spoilt.run_dir).values()] == [Verdict.CAPTURED] * 3
        ran = run(["aorta-collectors", "verify", str(spoilt.run_dir)], spoilt.run_dir).ok()
        assert "3 symbolic link(s) not followed" in ran.err

    def test_folders_without_end_are_told(self, spoilt: Run) -> None:
        deep = spoilt.run_dir / "deep"
        deep.mkdir()
        fd = os.open(deep, os.O_RDONLY)
        for _ in range(300):
            os.mkdir("d", dir_fd=fd)
            inner = os.open("d", os.O_RDONLY, dir_fd=fd)
            os.close(fd)
            fd = inner
        os.close(fd)
        found = findings_of(spoilt.run_dir)
        assert [found[index].verdict for index in "012"] == [Verdict.CAPTURED] * 3
        assert "folders are nested deeper than 64" in found["-"].reason
        run(["rm", "-rf", str(deep)], spoilt.run_dir).ok()


@pytest.mark.parametrize("which", ["trial", "artifacts", "cell", "receipt", "records", "summary"])
def test_somebody_who_swaps_while_it_is_verified_gets_nothing_read(spoilt: Run, which: str) -> None:
    """What lies outside would be another run's evidence, and be called that if it were ever opened."""
    path: Path = getattr(spoilt, which)
    outside, kept = spoilt.run_dir.parent / "outside", path.with_name("kept")
    shutil.copytree(spoilt.run_dir, outside)
    for file in outside.rglob("*"):
        if file.is_file():
            text = file.read_bytes()
            file.write_bytes(text.replace(b"cell0-", b"SECRET").replace(b'"torch.float32"', b'"SECRET"'))
    lure = spoilt.run_dir.parent / "lure"
    lure.symlink_to(outside / path.relative_to(spoilt.run_dir))
    link = spoilt.run_dir.parent / "link"
    before, done, swaps = state(outside), threading.Event(), [0]

    def swapping() -> None:
        while not done.is_set():
            os.rename(path, kept)
            shutil.copyfile(lure, link, follow_symlinks=False)
            os.rename(link, path)
            os.unlink(path)
            os.rename(kept, path)
            swaps[0] += 1

    thread = threading.Thread(target=swapping)
    thread.start()
    try:
        verdicts = set()
        for _ in range(60):
            for finding in verify_run(spoilt.run_dir, NAMES, load_collector):
                verdicts.add(finding.verdict)
                assert "SECRET" not in finding.reason
                assert "SECRET" not in json.dumps(finding.to_json())
    finally:
        done.set()
        thread.join()
    assert swaps[0] > 60
    assert verdicts <= {Verdict.CAPTURED, Verdict.INVALID, Verdict.MISSING, Verdict.INCOMPLETE}
    assert state(outside) == before
    assert {finding.verdict for finding in verify_run(spoilt.run_dir, NAMES, load_collector)} == {Verdict.CAPTURED}


def test_reading_receipts_alone_follows_no_link_either(spoilt: Run) -> None:
    swap(spoilt.receipt)
    swap(spoilt.trial)
    verdicts = [finding.verdict for finding in receipts_of(spoilt.run_dir, NAMES)]
    assert verdicts == [Verdict.CAPTURED, Verdict.INVALID, Verdict.CAPTURED]


#: Trains one step, and does to its own results tree what SPOIL says. `outside` holds something of the user's.
PROGRAM = """
import os, shutil, socket, sys
from pathlib import Path

import torch
from torch import nn

mine = Path(os.environ.get("NANLOG_DIR", "."))
outside = Path.cwd() / "outside"
spoil = os.environ.get("SPOIL", "")
model = nn.ModuleDict({"plain": nn.Linear(2, 2)})
if spoil == "escape":
    model = nn.ModuleDict({"\\x1b[2J\\nall good": nn.Linear(2, 2)})

def forward(x):
    for layer in model.values():
        x = layer(x)
    return x

model.forward = forward
model(torch.full((1, 2), float("nan"))).sum().backward()
if spoil == "trial-link":
    shutil.copytree(mine.parent, outside / "taken")
    mine.parent.rename(mine.parent.with_name("moved"))
    mine.parent.symlink_to(outside / "taken")
if spoil == "artifacts-link":
    shutil.rmtree(mine)
    mine.symlink_to(outside)
if spoil == "receipt-link":
    (mine.parent.parent / "receipt_d0_m0_t0_layer_numerics.json").symlink_to(outside / "precious")
if spoil == "ledger-link":
    (mine.parents[3] / "evidence.json").unlink()
    (mine.parents[3] / "evidence.json").symlink_to(outside / "precious")
if spoil == "files":
    os.mkfifo(mine / "pipe")
    os.link(outside / "precious", mine / "linked")
    for name in (b"a 'b' \\"c\\"", b"\\xff", b"\\n", b"\\x1b[2J"):
        (mine / os.fsdecode(name)).write_text("x")
"""
SPOILS = ("escape", "trial-link", "artifacts-link", "receipt-link", "files", "ledger-link")


def _build(directory: Path) -> Sweep:
    place = directory / "with space, 'quote' and \"quotes\""
    (place / "outside").mkdir(parents=True)
    (place / "outside" / "precious").write_text("mine")
    (place / "train.py").write_text(PROGRAM)
    bundles = mitigations(place / "m.json", {spoil: {"SPOIL": spoil} for spoil in SPOILS})
    recipe = probe_recipe(place / "r.yaml", list(SPOILS), collect={"layer_numerics": {"NANLOG_SAMPLE_EVERY": "1"}})
    return sweep_command(place, recipe, ["python", "train.py"], "--mitigations-file", str(bundles), output="o 'ut'")


@pytest.mark.sweep
class TestSweep:
    @pytest.fixture
    def sweep(self, tmp_path_factory: pytest.TempPathFactory) -> Sweep:
        return once(tmp_path_factory, "linking", _build)

    @pytest.mark.parametrize(
        ("spoil", "verdict"),
        [
            *(("escape", "captured"), ("receipt-link", "captured"), ("files", "captured"), ("ledger-link", "captured")),
            *(("trial-link", "invalid"), ("artifacts-link", "invalid")),
        ],
    )
    def test_each_cell_has_its_verdict(self, sweep: Sweep, spoil: str, verdict: str) -> None:
        assert sweep.ran.code == 1
        assert sweep.receipt(spoil)["verdict"] == verdict
        if verdict == "invalid":
            assert "is a symbolic link, which is not followed" in sweep.receipt(spoil)["reason"]

    def test_nothing_of_the_users_was_touched(self, sweep: Sweep) -> None:
        outside = sweep.run_dir.parents[1] / "outside"
        assert (outside / "precious").read_text() == "mine"
        assert sorted(path.name for path in outside.iterdir()) == ["precious", "taken"]

    def test_no_control_character_reaches_the_terminal(self, sweep: Sweep) -> None:
        assert "\x1b[2J" not in sweep.ran.out + sweep.ran.err
        assert r"\x1b[2J\nall good" in sweep.ran.out

    def test_verifying_again_finds_the_same(self, sweep: Sweep) -> None:
        ran = run(["aorta-collectors", "verify", str(sweep.run_dir)], sweep.run_dir)
        assert (ran.code, "Traceback" in ran.err) == (1, False)
        assert "4 of 6 requests satisfied" in ran.out
        assert "\x1b" not in ran.out + ran.err
