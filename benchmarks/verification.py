"""How long `aorta-collectors verify` takes for a large run, beside what the machine allows.

    python benchmarks/verification.py                         # 500 trials of 8 ranks: some minutes, 2 GB of disk
    python benchmarks/verification.py --trials 50 --records 1000
    python benchmarks/verification.py --keep run              # stays there, to look at or to run again

The evidence is that of one real rank, copied: each rank's records with its number, each trial's summaries with its run
id. What bounds verification is the digest and the decoding of each byte; both are measured here on the same files, on
one core, and the sum is the limit. Reading from the page cache is a small part of that. Everything else, the schema
above all, is what verifying adds: the ratio is the processor time of the whole command, its start and all of its
processes included, over the limit.

500 trials of 8 ranks, 2.4 million records in 1.5 GB, on two quiet cores: sha256 0.7 s at 2.1 GB/s and decoding 2.8 s at
0.55 GB/s of one core, the command 10.6 s of processor (3.0 of the limit) and 5.5 s of wall clock.
A process that verifies holds some 45 MB, however large the run is.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import orjson

from aorta_collectors.api import Expected, Verdict
from aorta_collectors.evidence.directory import Anchor
from aorta_collectors.evidence.receipt import Receipt, receipt_name
from aorta_collectors.evidence.trial import check_artifacts
from aorta_collectors.layer_numerics.names import RUN_ID_VARIABLE
from aorta_collectors.registry import load_collector

#: Ten records a step: a Linear layer's activation and the gradient of its input, five times.
_RECORDS_A_STEP = 10
_PROGRAM = """
import sys
import torch

model = torch.nn.Sequential(*[torch.nn.Linear(4, 4) for _ in range(5)])
for _ in range(int(sys.argv[1])):
    model(torch.ones(2, 4, requires_grad=True)).sum().backward()
"""
_OPTIONS = {"NANLOG_SAMPLE_EVERY": "1"}
_TRIALS_A_CELL = 50


def make_run(run_dir: Path, trials: int, ranks: int, records: int) -> None:
    """A run directory as a sweep leaves it; every request in it is satisfied.

    Args:
        records: Of each rank, to the next ten.
    """
    with tempfile.TemporaryDirectory() as directory:
        environment = {**os.environ, **_OPTIONS, RUN_ID_VARIABLE: "trial", "NANLOG_DIR": directory}
        steps = -(-records // _RECORDS_A_STEP)
        argv = [sys.executable, "-m", "aorta_collectors.layer_numerics", "-c", _PROGRAM, str(steps)]
        subprocess.run(argv, env=environment, check=True, capture_output=True)
        summary = json.loads((Path(directory) / "summary_rank0.json").read_bytes())
        lines = (Path(directory) / "layers_rank0.jsonl").read_bytes()
    of_rank = [lines.replace(b'"rank": 0, "gpu": 0', b'"rank": %d, "gpu": %d' % (rank, rank)) for rank in range(ranks)]
    for trial in range(trials):
        cell = f"cell{trial // _TRIALS_A_CELL}"
        _make_trial(run_dir / "cells" / cell / "training", cell, trial % _TRIALS_A_CELL, summary, of_rank)


def _make_trial(place: Path, cell: str, index: int, summary: dict[str, object], of_rank: list[bytes]) -> None:
    coordinates, run_id, name = f"d0_m0_t{index}", f"{cell}-{index}", "layer_numerics"
    artifacts = place / f"trial_{coordinates}" / name
    artifacts.mkdir(parents=True)
    for rank, lines in enumerate(of_rank):
        (artifacts / f"layers_rank{rank}.jsonl").write_bytes(lines)
        content = {**summary, "rank": rank, "world_size": len(of_rank), "run_id": run_id}
        (artifacts / f"summary_rank{rank}.json").write_text(json.dumps(content))
    collector = load_collector(name)
    expected = Expected(collector.validate(_OPTIONS), frozenset({run_id}))
    checked = check_artifacts(collector, Anchor(place), artifacts, expected)
    if checked.verification.verdict is not Verdict.CAPTURED:
        raise RuntimeError(checked.verification.reason)
    trial_id = f"training_{coordinates}"
    record = {"trial_id": trial_id, "config": {"_aorta_collect": [name]}}
    (place / f"trial_{coordinates}.json").write_text(json.dumps(record))
    receipt = Receipt(
        collector=name,
        trial=trial_id,
        cell=cell,
        run_ids=(run_id,),
        verdict="captured",
        reason=checked.verification.reason,
        route="front-end",
        options=_OPTIONS,
        artifacts=f"trial_{coordinates}/{name}",
        files=checked.files,
        metrics=checked.metrics,
        sha256=checked.sha256,
        details=checked.verification.details,
    )
    (place / receipt_name(coordinates, name)).write_bytes(receipt.to_json())


def limit(run_dir: Path) -> dict[str, float]:
    """Seconds of one core for reading all records once, for their digests, and for decoding them; and how many."""
    seconds = dict.fromkeys(("read", "sha256", "decode"), 0.0)
    size, count = 0, 0
    for path in sorted(run_dir.rglob("layers_*.jsonl")):
        with _timed(seconds, "read"):
            content = path.read_bytes()
        with _timed(seconds, "sha256"):
            hashlib.sha256(content).digest()
        lines = content.splitlines()
        with _timed(seconds, "decode"):
            for line in lines:
                orjson.loads(line)
        size, count = size + len(content), count + len(lines)
    return {**seconds, "bytes": size, "records": count}


@contextlib.contextmanager
def _timed(seconds: dict[str, float], what: str) -> Iterator[None]:
    began = time.process_time()
    yield
    seconds[what] += time.process_time() - began


def verified(run_dir: Path) -> dict[str, float]:
    """Seconds of wall clock and of processor that the command took."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        [Path(sys.executable).parent / "aorta-collectors", "verify", str(run_dir)],
        capture_output=True,
        text=True,
        check=False,
    )
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise RuntimeError(done.stdout + done.stderr)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"wall": wall, "cpu": cpu}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=500)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--records", type=int, default=600, help="of each rank")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="where the run is made; used as it is if it is there")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        run_dir = arguments.keep or Path(directory) / "run"
        if not run_dir.exists():
            make_run(run_dir, arguments.trials, arguments.ranks, arguments.records)
        bound = limit(run_dir)  # first, so that the page cache is warm for both
        taken = min((verified(run_dir) for _ in range(2)), key=lambda each: each["wall"])
    floor = bound["sha256"] + bound["decode"]
    print(f"{bound['records']:,.0f} records, {bound['bytes'] / 1e9:.2f} GB")
    for what in ("read", "sha256", "decode"):
        print(f"{what:8} {bound[what]:6.1f} s of one core, {bound['bytes'] / 1e9 / bound[what]:.2f} GB/s")
    print(f"{'limit':8} {floor:6.1f} s of one core (sha256 and decode)")
    ratio = taken["cpu"] / floor
    print(f"{'verify':8} {taken['wall']:6.1f} s, {taken['cpu']:.1f} s of processor, {ratio:.2f} of the limit")
    return 0


if __name__ == "__main__":
    sys.exit(main())
