"""One run: its directory is made, its sweep runs as a child process, and run.json says how that went."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aorta_collectors.errors import CollectorsError
from aorta_collectors.investigate.commands import command_text, environment_of, filled_in
from aorta_collectors.investigate.described import run_text
from aorta_collectors.investigate.digests import sha256_below
from aorta_collectors.investigate.files import (
    BUNDLES,
    COMMAND,
    RECIPE,
    RUN,
    RUNS,
    SCHEMA_VERSION,
    SWEEP_LOG,
    Investigation,
    Run,
    directory_name,
    utc_now,
    write_run,
)
from aorta_collectors.investigate.left_over import end_processes_of, gone_within, processes_of
from aorta_collectors.investigate.logs import keep_output
from aorta_collectors.investigate.outcome import outcome_of
from aorta_collectors.investigate.recipes import cell_recipe, command_recipe
from aorta_collectors.linux import signal_name
from aorta_collectors.sweep_process import end, ends_with_parent

_POLL_S = 0.1
# The host ends a command that takes too long, and keeps what it left; what runs inside of the host, nobody does.
_PATIENCE_S = 300
_LEFT_OVER_S = 30


@dataclass(frozen=True)
class _Ended:
    """How the sweep's process ended. `code` is negative for a signal, and None where its time was over."""

    code: int | None
    cpu_s: float | None = None
    max_rss_bytes: int | None = None


def execute(investigation: Investigation, entry: Mapping[str, Any], attempt: int) -> Run:
    """Run one entry of the schedule to its end.

    Returns:
        The run: completed, failed, or interrupted where something killed its sweep.

    Raises:
        KeyboardInterrupt: As it came. The sweep has been ended and the run is kept as interrupted.
        CollectorsError: The recipe is refused by now, or the directory cannot be written to.
    """
    run = _begun(investigation, entry, attempt)
    try:
        ended = _sweep(run, investigation.metadata)
    except BaseException as error:
        with _uninterrupted():
            _close(investigation, run, {"state": "interrupted", "reason": f"ended by {type(error).__name__}"})
        raise
    collect = tuple(investigation.metadata["collect"]) if entry["tool"] else ()
    if ended.code is None:
        fields = {"state": "failed", "reason": "it took longer than it may (--timeout), and was ended"}
    elif ended.code < 0:
        reason = f"its sweep was killed by {signal_name(-ended.code)}"
        fields = {"state": "interrupted", "reason": reason}
    else:
        fields = outcome_of(run.directory, collect, investigation.metadata["points"])
    usage = {"cpu_s": ended.cpu_s, "max_rss_bytes": ended.max_rss_bytes}
    return _close(investigation, run, {**fields, **usage, "ended_at": utc_now()})


def close_lost(investigation: Investigation, run: Run) -> None:
    """Write down that a run was interrupted, of which nobody could say so when it was.

    Raises:
        CollectorsError: It is still alive.
    """
    # Its sweep has been told to end when the investigation ended; what the sweep ran may take a while.
    if not gone_within(run.directory, _LEFT_OVER_S):
        pids = ", ".join(map(str, processes_of(run.directory)))
        raise CollectorsError(f"{run.directory.name}, of an earlier call, still runs (process {pids}); end it first")
    _close(investigation, run, {"state": "interrupted", "reason": "it was killed together with the investigation"})


def _begun(investigation: Investigation, entry: Mapping[str, Any], attempt: int) -> Run:
    """The run's directory, which appears with all that is known before, or not at all."""
    metadata = investigation.metadata
    (variant,) = (variant for variant in metadata["variants"] if variant["name"] == entry["variant"])
    seed, repetition = entry["seed"], entry["repetition"]
    collect = metadata["collect"] if entry["tool"] else {}
    name = directory_name(entry["name"], attempt)
    directory = investigation.root / RUNS / name
    words = ["sweep", "run", "--recipe", str(directory / RECIPE), "--output", str(directory / BUNDLES), "-v"]
    if variant["command"] is None:
        recipe = cell_recipe(Path(variant["recipe"]), variant["cell"], collect, seed, repetition)
    else:
        recipe = command_recipe(collect, metadata["timeout_s"])
        words += ["--", *(filled_in(word, seed, repetition) for word in variant["command"])]
    environment = environment_of(variant["environment"], seed, directory)
    record = {
        "schema_version": SCHEMA_VERSION,
        **{key: entry[key] for key in ("number", "name", "variant", "repetition", "seed", "tool", "warm_up")},
        "attempt": attempt,
        "state": "running",
        "command": [*_command_line(), *words],
        "environment": environment,
        "started_at": utc_now(),
        **dict.fromkeys(("ended_at", "exit_code", "duration_s", "cpu_s", "max_rss_bytes", "verdict", "finite")),
        "metrics": {},
        "receipts": [],
        "points_missing": [],
        "sha256": {},
        "reason": "",
    }
    hidden = directory.with_name(f".{name}.new")
    shutil.rmtree(hidden, ignore_errors=True)
    try:
        hidden.mkdir(parents=True)
        (hidden / RECIPE).write_text(recipe, encoding="utf-8")
        what = f"Run {entry['number']} of {investigation.root}: {run_text(entry)}."
        (hidden / COMMAND).write_text(command_text(record["command"], environment, metadata["cwd"], what))
        (hidden / SWEEP_LOG).touch()
        write_run(investigation.root, hidden, record)
        hidden.rename(directory)
    except OSError as error:
        raise CollectorsError(f"{directory} cannot be written: {error.strerror}") from None
    return Run(directory, record)


def _command_line() -> list[str]:
    """The command of this package, as installed for this interpreter."""
    script = Path(sys.executable).parent / "aorta-collectors"
    return [str(script)] if os.access(script, os.X_OK) else [sys.executable, "-m", "aorta_collectors"]


def _sweep(run: Run, metadata: Mapping[str, Any]) -> _Ended:
    environment = {**os.environ, **run.record["environment"]}
    with (run.directory / SWEEP_LOG).open("ab") as log:
        sweep = subprocess.Popen(
            run.record["command"],
            cwd=metadata["cwd"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=ends_with_parent(),
        )
    limit = None if metadata["timeout_s"] is None else time.monotonic() + metadata["timeout_s"] + _PATIENCE_S
    try:
        return _waited(sweep, limit)
    finally:
        # A sweep that ends by itself has ended its program.
        if sweep.returncode is None or sweep.returncode < 0:
            with _uninterrupted():
                if sweep.returncode is None:
                    end(sweep)
                end_processes_of(run.directory)


def _waited(sweep: subprocess.Popen[bytes], limit: float | None) -> _Ended:
    while limit is None or time.monotonic() < limit:
        # Of the child, and of all that it has waited for.
        pid, status, usage = os.wait4(sweep.pid, os.WNOHANG)
        if pid:
            sweep.returncode = os.waitstatus_to_exitcode(status)
            return _Ended(sweep.returncode, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)
        time.sleep(_POLL_S)
    return _Ended(None)


def _close(investigation: Investigation, run: Run, fields: Mapping[str, Any]) -> Run:
    keep_output(run.directory)
    unreadable: list[str] = []
    record = {**run.record, **fields, "sha256": sha256_below(run.directory, (RUN,), unreadable)}
    if unreadable:
        record["reason"] = "; ".join(filter(None, (record["reason"], f"left out of sha256: {unreadable[0]}")))
    write_run(investigation.root, run.directory, record)
    return Run(run.directory, record)


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """What is to be kept of a run is kept, also where somebody is impatient."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
