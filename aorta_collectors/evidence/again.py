"""Checking again what receipts vouch for, in several processes where that is much."""

from __future__ import annotations

import functools
import gc
import itertools
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path

from aorta_collectors.api import Collector, Expected, Verdict
from aorta_collectors.errors import CollectorsError
from aorta_collectors.evidence.directory import Anchor
from aorta_collectors.evidence.finding import Finding
from aorta_collectors.evidence.receipt import Receipt
from aorta_collectors.evidence.trial import Checked, check_again, check_rest

#: Told (done, total).
Progress = Callable[[int, int], object]
Load = Callable[[str], Collector]

# Half a second of reading; another process takes as long to start.
_WORTH_A_PROCESS_BYTES = 64 << 20
_MOST_PROCESSES = 8
_AT_ONCE = 8
_CHECKED = (Verdict.CAPTURED, Verdict.PRUNED)


def check_all(
    run_dir: Path, findings: Sequence[Finding], load: Load, progress: Progress, *, in_processes: bool
) -> list[Finding]:
    """The findings, in their order, after another look at the artifacts of those that were captured, or at the rest."""
    captured = {index: finding for index, finding in enumerate(findings) if finding.verdict in _CHECKED}
    size = sum(sum(finding.receipt.files.values()) for finding in captured.values() if finding.receipt is not None)
    processes = min(_MOST_PROCESSES, len(os.sched_getaffinity(0)), size // _WORTH_A_PROCESS_BYTES, len(captured))
    checked: dict[int, Finding] = {}
    if in_processes and processes > 1:
        for results in _elsewhere(run_dir, captured, load, processes):
            checked.update(results)
            progress(len(checked), len(captured))
    load = functools.cache(load)
    for index in [index for index in captured if index not in checked]:
        checked[index] = _again(run_dir, captured[index], load)
        progress(len(checked), len(captured))
    return [checked.get(index, finding) for index, finding in enumerate(findings)]


def _elsewhere(
    run_dir: Path, captured: Mapping[int, Finding], load: Load, processes: int
) -> Iterator[dict[int, Finding]]:
    """What other processes find, as it comes. Less than all where they cannot be started, or one is killed."""
    batches = iter(captured.items())
    # Not forked: the caller may have threads, such as that of a progress bar.
    pool = ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), _begin)
    try:
        tasks = []
        while batch := dict(itertools.islice(batches, _AT_ONCE)):
            tasks.append(pool.submit(_again_all, run_dir, batch, load))
        for task in as_completed(tasks):
            yield task.result()
    except (BrokenProcessPool, OSError):
        return
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _begin() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the caller's
    # Decoded records hold no cycles; looking for some among them takes a fifth of the time.
    gc.freeze()
    gc.set_threshold(100_000)


def _again_all(run_dir: Path, captured: Mapping[int, Finding], load: Load) -> dict[int, Finding]:
    load = functools.cache(load)
    return {index: _again(run_dir, finding, load) for index, finding in captured.items()}


def _again(run_dir: Path, finding: Finding, load: Load) -> Finding:
    receipt = finding.receipt
    if receipt is None:
        return finding
    anchor, vouched_for = Anchor(run_dir), tuple(receipt.sha256)
    if finding.verdict is Verdict.PRUNED and receipt.files:
        rest = check_rest(anchor, finding.artifacts, vouched_for)
        if rest.verification.verdict is Verdict.MISSING:
            return finding
        # Where nothing is gone, it can all be verified.
        if not receipt.files.keys() <= rest.files.keys():
            return _compared(finding, receipt, rest)
    try:
        collector = load(finding.collector)
        expected = Expected(collector.recall(dict(receipt.options)), frozenset(receipt.run_ids), receipt.route)
    except CollectorsError as error:
        return replace(finding, verdict=Verdict.INVALID, reason=str(error))
    return _compared(finding, receipt, check_again(collector, anchor, finding.artifacts, expected, vouched_for))


def _compared(finding: Finding, receipt: Receipt, checked: Checked) -> Finding:
    """The finding, if what was checked is what the receipt vouches for, as far as retention has left it."""
    verification = checked.verification
    if not verification.verdict.satisfied:
        reason = f"captured when the trial ended, but since then: {verification.reason}"
        return replace(finding, verdict=verification.verdict, reason=reason)
    for name, size in receipt.files.items():
        if verification.verdict is Verdict.PRUNED and name not in checked.files:
            continue
        if checked.files.get(name) != size or checked.sha256.get(name) != receipt.sha256.get(name):
            reason = f"{name} is not the file that was verified when the trial ended; it has been changed since"
            return replace(finding, verdict=Verdict.INVALID, reason=reason)
    return replace(finding, added=tuple(name for name in checked.files if name not in receipt.files))
