"""Verifying a large run: several processes, a table that can be read, and a progress bar where there is a terminal."""

from __future__ import annotations

import json
import multiprocessing
import os
import pty
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from aorta_collectors.api import Collector, Verdict
from aorta_collectors.evidence.run import verify_run
from aorta_collectors.host.attachment import Attachment
from aorta_collectors.registry import load_collector
from tests.faults.spoiled import NAMES, Run
from tests.support import BIN, PYTHON, ROOT, Ran, run

#: The command with a progress bar from the start.
AT_ONCE = """
import aorta_collectors.cli
from aorta_collectors.cli import progress

progress._QUICK_S = 0.0
aorta_collectors.cli.main()
"""


def many(spoilt: Run, trials: int) -> None:
    """Copies of trial 0 as further trials that are off, and so need no artifacts."""
    for index in range(3, trials):
        for name in ("trial_d0_m0_t{}.json", "receipt_d0_m0_t{}_layer_numerics.json"):
            content = json.loads((spoilt.cell / name.format(0)).read_text())
            content["trial" if "trial" in content else "trial_id"] = f"training_d0_m0_t{index}"
            if "verdict" in content:
                content["verdict"] = "off"
            (spoilt.cell / name.format(index)).write_text(json.dumps(content))


def verify(spoilt: Run, *options: str) -> Ran:
    return run(["aorta-collectors", "verify", *options, str(spoilt.run_dir)], spoilt.run_dir)


class TestTable:
    def test_satisfied_trials_of_a_large_run_share_a_row_and_others_are_listed(self, spoilt: Run) -> None:
        many(spoilt, 60)
        shutil.rmtree(spoilt.trial)
        metrics = {"layer_numerics_first_bad_step": 7, "layer_numerics_first_bad_layer": "over_arch"}
        spoilt.edit(spoilt.cell / "receipt_d0_m0_t2_layer_numerics.json", metrics=metrics)
        ran = verify(spoilt)
        assert ran.code == 1
        rows = [re.sub(" +", " ", line) for line in ran.out.splitlines() if line.startswith("cell0 ")]
        assert rows == [
            "cell0 2 trials layer_numerics captured in 1 of 2, first in trial 2: step 7 over_arch",
            "cell0 57 trials layer_numerics off none ",
            "cell0 1 layer_numerics missing none ",
        ]
        assert "cell0, trial 1: missing: captured when the trial ended, but since then" in ran.out
        assert "59 of 60 requests satisfied" in ran.out.splitlines()[-1]

    def test_all_of_them_are_listed_where_that_is_asked_for(self, spoilt: Run) -> None:
        many(spoilt, 60)
        ran = verify(spoilt, "--all").ok()
        rows = [line.split()[1] for line in ran.out.splitlines() if line.startswith("cell0 ")]
        assert sorted(map(int, rows)) == list(range(60))
        assert len(json.loads(verify(spoilt, "--json").ok().out)) == 60

    def test_up_to_forty_are_listed_anyway(self, spoilt: Run) -> None:
        many(spoilt, 40)
        assert verify(spoilt).out == verify(spoilt, "--all").ok().out


class TestProgress:
    @staticmethod
    def on_a_terminal(argv: list[str]) -> tuple[str, str]:
        """What comes to stdout, and to the terminal that stderr is."""
        ours, theirs = pty.openpty()
        argv = [str(BIN / argv[0]), *argv[1:]]
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
        with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=theirs, env=environment, text=True) as process:
            os.close(theirs)
            shown = b""
            try:
                while data := os.read(ours, 1 << 16):
                    shown += data
            except OSError:  # how the end of a terminal reads
                pass
            assert process.stdout is not None
            out = process.stdout.read()
        os.close(ours)
        assert process.returncode == 0, (out, shown)
        return out, shown.decode()

    def test_a_terminal_shows_a_bar_while_there_is_something_to_do(self, spoilt: Run) -> None:
        out, shown = self.on_a_terminal(["python", "-c", AT_ONCE, "verify", str(spoilt.run_dir)])
        assert "verifying trials" in shown
        assert re.search(r"[123]/3", shown)
        assert "verifying" not in out
        assert "3 of 3 requests satisfied" in out

    def test_a_file_gets_none(self, spoilt: Run) -> None:
        ran = run([PYTHON, "-c", AT_ONCE, "verify", str(spoilt.run_dir)], spoilt.run_dir).ok()
        assert ran.err == ""

    def test_what_is_quick_shows_none(self, spoilt: Run) -> None:
        many(spoilt, 5)
        for name in ("trial_d0_m0_t0", "trial_d0_m0_t2", "trial_d0_m0_t1"):
            spoilt.edit(spoilt.cell / f"receipt_{name[6:]}_layer_numerics.json", verdict="off")
        assert self.on_a_terminal(["aorta-collectors", "verify", str(spoilt.run_dir)])[1] == ""


def load_and_die_elsewhere(name: str) -> Collector:
    """Where another process asks for a collector, it is killed, as it is where memory runs out."""
    if multiprocessing.parent_process() is not None:
        os.kill(os.getpid(), signal.SIGKILL)
    return load_collector(name)


class TestProcesses:
    @pytest.fixture
    def large(self, spoilt: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
        """Nine gigabytes a trial that take no space, and that nobody has vouched for beyond their size."""
        for index in range(3):
            artifacts = spoilt.cell / f"trial_d0_m0_t{index}" / "layer_numerics"
            with (artifacts / "core").open("wb") as stream:
                stream.truncate(9 << 30)
            receipt = spoilt.cell / f"receipt_d0_m0_t{index}_layer_numerics.json"
            files = json.loads(receipt.read_bytes())["files"]
            spoilt.edit(receipt, files={**files, "core": 9 << 30})
        monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1})
        return spoilt

    def test_they_share_the_work_and_find_the_same(self, large: Run) -> None:
        told: list[tuple[int, int]] = []
        large.records.write_bytes(b"{}\n")
        findings = verify_run(
            *(large.run_dir, NAMES, load_collector, lambda done, total: told.append((done, total))), in_processes=True
        )
        assert [finding.verdict for finding in findings] == [Verdict.CAPTURED, Verdict.INVALID, Verdict.CAPTURED]
        assert "layers_rank1.jsonl: line 1: " in findings[1].reason
        assert told == [(3, 3)]  # one of them had all three, which are few

    def test_one_that_is_killed_loses_nothing(self, large: Run) -> None:
        told: list[tuple[int, int]] = []
        findings = verify_run(
            *(large.run_dir, NAMES, load_and_die_elsewhere, lambda done, total: told.append((done, total))),
            in_processes=True,
        )
        assert [finding.verdict for finding in findings] == [Verdict.CAPTURED] * 3
        assert told == [(1, 3), (2, 3), (3, 3)]

    def test_a_resumed_sweep_starts_none(self, large: Run) -> None:
        """They would import the program that the sweep is called from, which may have no main guard."""
        findings = verify_run(large.run_dir, NAMES, Attachment().load)
        assert [finding.verdict for finding in findings] == [Verdict.CAPTURED] * 3

    def test_a_file_whose_size_alone_is_vouched_for_is_held_to_it(self, large: Run) -> None:
        with (large.artifacts / "core").open("ab") as stream:
            stream.write(b"x")
        verdict, reason = large.later()
        assert (verdict, reason.split()[0]) == ("invalid", "core")


def test_the_benchmark_says_what_it_measures(tmp_path: Path) -> None:
    script = str(ROOT / "benchmarks" / "verification.py")
    ran = run([PYTHON, script, "--trials", "2", "--ranks", "2", "--records", "20"], tmp_path).ok()
    assert "80 records" in ran.out
    assert re.findall(r"^\w+", ran.out, re.MULTILINE)[1:] == ["read", "sha256", "decode", "limit", "verify"]
