"""Trials in processes of their own: captured as in the sweep's, and an error where nobody looked for evidence."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.host.support import OURS, Sweep, aorta, cell, once, read_json, sweep_workload, write_recipe
from tests.support import BIN, Ran, run, summary

pytestmark = pytest.mark.sweep

ASK = {"layer_numerics": {"NANLOG_SAMPLE_EVERY": "1"}}

#: A workload that may be isolated, and does what its configuration says.
WORKLOAD = """
import os, signal
from aorta.workloads import Workload, WorkloadResult

class Tiny(Workload):
    trial_isolation_supported = frozenset({"in_process", "process"})

    def setup(self):
        import torch
        from torch import nn
        self.torch, self.mode = torch, self.config.get("mode", "train")
        self.model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))

    def run(self):
        if self.mode == "idle":
            return WorkloadResult(passed=True)
        print("told:", os.environ.get("AORTA_COLLECTORS_TRIAL"))
        for step in range(1, 5):
            self.model(self.torch.ones(2, 4)).sum().backward()
            if step == 3 and self.mode == "die":
                os.kill(os.getpid(), signal.SIGKILL)
        return WorkloadResult(passed=self.mode != "fail", failure_count=int(self.mode == "fail"))
"""

#: What a worker has that was started by an interpreter without the plugin.
WITHOUT_PLUGIN = f"""
import sys
if "aorta.run._trial_worker" in sys.orig_argv:
    import importlib.metadata as metadata
    find = metadata.entry_points
    def entry_points(**selection):
        found = find(**selection)
        if not isinstance(found, metadata.EntryPoints):  # of all groups, before Python 3.12
            found = [entry for group in found for entry in found.select(group=group)]
        return metadata.EntryPoints(e for e in found if e.dist is None or e.dist.name != {OURS!r})
    metadata.entry_points = entry_points
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory for PYTHONPATH in which the workload is installed; `foreign` below it hides the plugin."""
    root = tmp_path_factory.mktemp("site")
    info = root / "tiny_workload-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny-workload\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[aorta.workloads]\ntiny = tiny_workload:Tiny\n"
        "[aorta.workload_policies]\ntiny = aorta.run.validation:PROCESS_OPTIONAL_POLICY\n"
    )
    (root / "tiny_workload.py").write_text(WORKLOAD)
    (root / "foreign").mkdir()
    (root / "foreign" / "sitecustomize.py").write_text(WITHOUT_PLUGIN)
    return root


def _foreign(site: Path) -> str:
    return os.pathsep.join((str(site / "foreign"), str(site)))


def _isolated(path: Path, cells: list[dict[str, Any]], **content: Any) -> Path:
    content = {"workload": "tiny", "steps": 1, "trial_isolation": "process", "collect": ASK, **content}
    return write_recipe(path, cells=cells, **content)


def _mode(name: str, mode: str | None = None, **content: Any) -> dict[str, Any]:
    return cell(name, workload_config={"mode": mode or name}, **content)


@pytest.fixture(scope="module")
def sweep(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    """One cell for each way that an isolated trial can end."""

    def build(directory: Path) -> Sweep:
        cells = [
            _mode("train"),
            cell("bare", "no_collectors"),
            _mode("die"),
            _mode("idle"),
            _mode("tolerated", "idle", collect={"layer_numerics": {"on_missing": "warn"}}),
            _mode("fail"),
            _mode("foreign", "train", extra_env={"PYTHONPATH": _foreign(site)}),
            _mode("foreign-fail", "fail", extra_env={"PYTHONPATH": _foreign(site)}),
        ]
        recipe = _isolated(directory / "r.yaml", cells, save_logs=True)
        return sweep_workload(directory, recipe, env={"PYTHONPATH": str(site)})

    return once(tmp_path_factory, "isolated", build)


def _details(sweep: Sweep, name: str) -> list[dict[str, Any]]:
    return [detail for detail in sweep.trial(name)["result"]["failure_details"] if detail["type"] == "EvidenceMissing"]


def test_its_evidence_is_captured_in_its_own_process(sweep: Sweep) -> None:
    receipt, trial = sweep.receipt("train"), sweep.trial("train")
    assert (receipt["verdict"], receipt["route"], receipt["cell"]) == ("captured", "in-process", "train")
    assert trial["exit_status"] == "ok"
    assert trial["result"]["metrics"]["layer_numerics_steps"] == 4
    found = summary(sweep.artifacts("train"))
    assert found["run_id"] in receipt["run_ids"]
    assert found["pid"] != os.getpid()
    row = sweep.cell("train")
    assert row["metrics_summary"]["layer_numerics_records"]["n"] == 1


def test_the_id_that_it_was_told_is_not_the_workloads_to_see(sweep: Sweep) -> None:
    assert (sweep.cell_dir("train") / "trial_d0_m0_t0.stdout.log").read_text().startswith("told: None\n")


def test_a_cell_without_collectors_is_off(sweep: Sweep) -> None:
    assert sweep.receipt("bare")["verdict"] == "off"
    assert sweep.trial("bare")["exit_status"] == "ok"


def test_a_pass_without_evidence_is_an_error(sweep: Sweep) -> None:
    assert sweep.receipt("idle")["verdict"] in ("unattached", "missing")
    assert sweep.trial("idle")["exit_status"] == "infrastructure_failed"
    assert len(_details(sweep, "idle")) == 1
    assert sweep.receipt("tolerated")["verdict"] == sweep.receipt("idle")["verdict"]
    assert sweep.trial("tolerated")["exit_status"] == "ok"


def test_a_failure_stays_one(sweep: Sweep) -> None:
    assert sweep.receipt("fail")["verdict"] == "captured"
    assert sweep.trial("fail")["exit_status"] == "workload_failed"
    assert not _details(sweep, "fail")
    assert sweep.trial("foreign-fail")["exit_status"] == "workload_failed"
    assert sweep.trial("foreign-fail")["result"]["failure_count"] == 1
    assert len(_details(sweep, "foreign-fail")) == 1


def test_a_process_that_dies_has_no_record_but_a_receipt_of_what_it_left(sweep: Sweep) -> None:
    assert not (sweep.cell_dir("die") / "trial_d0_m0_t0.json").exists()
    receipt = sweep.receipt("die")
    assert receipt["verdict"] == "incomplete"
    assert "died" in receipt["reason"]
    assert receipt["files"].keys() == {"layers_rank0.jsonl", "summary_rank0.json"}
    assert summary(sweep.artifacts("die"))["run_id"] in receipt["run_ids"]
    (line,) = [line for line in sweep.ran.out.splitlines() if line.startswith("die, trial -: ")]
    assert "missing: TrialWorkerError" in line
    assert "layer_numerics: incomplete" in line


@pytest.mark.parametrize("name", ["foreign", "foreign-fail"])
def test_a_process_without_the_plugin_is_not_taken_at_its_word(name: str, sweep: Sweep) -> None:
    receipt = sweep.receipt(name)
    assert (receipt["verdict"], receipt["route"], receipt["files"]) == ("missing", "unchanged", {})
    assert "ran without aorta-collectors" in receipt["reason"]
    assert not sweep.artifacts(name).exists()
    assert receipt["reason"] in _details(sweep, name)[0]["error"]
    if name == "foreign":
        assert sweep.trial(name)["exit_status"] == "infrastructure_failed"


def test_the_sweep_and_a_later_look_at_it_agree(sweep: Sweep, tmp_path: Path) -> None:
    assert sweep.ran.code == 1
    assert "requests for evidence not satisfied (cells: die, idle, foreign, foreign-fail)" in sweep.ran.err
    ran = run(["aorta-collectors", "verify", "--json", str(sweep.run_dir)], tmp_path)
    assert ran.code == 1
    verdicts = {found["cell"]: found["verdict"] for found in json.loads(ran.out)}
    assert verdicts == {
        "train": "captured",
        "bare": "off",
        "die": "missing",
        "idle": sweep.receipt("idle")["verdict"],
        "tolerated": sweep.receipt("tolerated")["verdict"],
        "fail": "captured",
        "foreign": "missing",
        "foreign-fail": "missing",
    }


def test_a_dry_run_shows_it_and_bad_options_are_refused(site: Path, tmp_path: Path) -> None:
    env = {"PYTHONPATH": str(site)}
    words = ["sweep", "run", "--recipe", "r.yaml", "--dry-run"]
    _isolated(tmp_path / "r.yaml", [_mode("train")])
    shown = aorta(words, tmp_path, env).ok().out
    assert "route: in-process, armed around tiny's setup() and run() in a process of its own" in shown
    _isolated(tmp_path / "r.yaml", [_mode("train")], collect={"layer_numerics": {"frontend": "aorta"}})
    refused = aorta(words, tmp_path, env)
    assert refused.code == 1
    assert "Error: recipe.collect.layer_numerics.frontend: " in refused.err


def test_a_receipt_of_an_earlier_run_does_not_count(site: Path, tmp_path: Path) -> None:
    """A plain run into the same directory: the second one's process is without the plugin, and leaves the receipt."""

    def plain(*words: str) -> tuple[Ran, Mapping[str, Any]]:
        asked = ["--workload", "tiny", "--trial-isolation", "process", "--collect", "layer_numerics"]
        ran = aorta(["run", *asked, *words], tmp_path, {"PYTHONPATH": str(site)})
        return ran, read_json(tmp_path / "results" / "tiny" / "receipt_d0_m0_t0_layer_numerics.json")

    first, captured = plain()
    first.ok()
    assert captured["verdict"] == "captured"
    second, missing = plain("--extra-env", f"PYTHONPATH={_foreign(site)}")
    assert second.code != 0
    assert missing["verdict"] == "missing"
    assert missing["run_ids"] != captured["run_ids"]


def test_ranks_hand_over_and_stop_together(tmp_path: Path) -> None:
    """Two ranks of the host's own workload; each runs every trial in a process of its own.

    `stop_after` is decided by each rank for itself: a trial without evidence must be an error on all of them, or the
    one that goes on would wait for the others.
    """
    small = {"hidden_size": 16, "ffn_size": 16, "num_heads": 2, "num_layers": 1, "vocab_size": 64, "seq_len": 8}
    cells = [cell("baseline"), cell("lacking", collect={"layer_numerics": {"NANLOG_WATCH_TYPES": "Conv2d"}})]
    recipe = _isolated(
        tmp_path / "r.yaml",
        cells,
        workload="llm_determinism",
        workload_config={**small, "dtype": "fp32"},
        stop_after={"events": 1, "max_trials": 2, "event_verdict": "pass"},
    )
    sweep = _two_ranks(tmp_path, recipe)
    assert sweep.receipt("baseline")["verdict"] == "captured"
    assert {path.name for path in sweep.artifacts("baseline").iterdir()} == {
        f"{stem}_rank{rank}.{suffix}" for rank in (0, 1) for stem, suffix in (("layers", "jsonl"), ("summary", "json"))
    }
    assert not (sweep.cell_dir("baseline") / "trial_d0_m0_t1.json").exists()
    for trial in (0, 1):
        assert sweep.receipt("lacking", trial)["verdict"] == "unattached"
        assert sweep.trial("lacking", trial)["exit_status"] == "infrastructure_failed"
    assert sweep.ran.code != 0


def test_the_hosts_race_is_armed_in_its_processes_as_far_as_it_gets(tmp_path: Path) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("on a GPU it trains nothing either, but runs for as long as it is told")
    config = {"mode": "ddp", "warmup_iterations": 1, "verify_iterations": 2}
    recipe = _isolated(tmp_path / "r.yaml", [cell("baseline")], workload="race", workload_config=config)
    sweep = _two_ranks(tmp_path, recipe)
    receipt = sweep.receipt("baseline")
    assert receipt["verdict"] == "unattached"
    assert len(receipt["run_ids"]) == 2
    types = [detail["type"] for detail in sweep.trial("baseline")["result"]["failure_details"]]
    assert types == ["RuntimeError", "RuntimeError", "EvidenceMissing"]
    assert sweep.ran.code != 0


def _two_ranks(directory: Path, recipe: Path) -> Sweep:
    command = ["torchrun", "--standalone", "--nproc_per_node=2", str(BIN / "aorta")]
    ran = run([*command, "sweep", "run", "--recipe", str(recipe), "--output", "out"], directory, timeout=170)
    (matrix,) = (directory / "out").glob("*/*/*/matrix.json")
    return Sweep(ran, matrix.parent, "workload")
