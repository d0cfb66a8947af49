"""Submitting a sweep: submit the cells that lack evidence, wait for their jobs, and say what each of them left."""

from __future__ import annotations

import contextlib
import fcntl
import socket
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from aorta_collectors.errors import CollectorsError
from aorta_collectors.host.single_cells import SingleCell, single_cells, validate_sweep
from aorta_collectors.printable import printable
from aorta_collectors.registry import collector_names, load_collector
from aorta_collectors.report.after_sweep import write_beside
from aorta_collectors.report.evidence import render, shown
from aorta_collectors.scaleout.engine import Engine, log_of
from aorta_collectors.scaleout.job import RESULTS, CellJob
from aorta_collectors.scaleout.ledger import Entry, Submission, open_submission
from aorta_collectors.scaleout.matrix import MATRIX, write_matrix
from aorta_collectors.scaleout.outcome import Judge, Outcome, exit_code
from aorta_collectors.scaleout.progress import Display
from aorta_collectors.scaleout.request import Request

_POLL_S = 0.5
_LOCK = ".submission.lock"


def submit(request: Request, engine: Engine, output: Path, at_once: int | None) -> bool:
    """Run a sweep as one job a cell. Returns whether every cell ran and has the evidence that it asked for.

    Args:
        output: The directory for everything that this writes; the same one continues an earlier call.
        at_once: How many local jobs may run at a time.

    Raises:
        CollectorsError: The host refuses the recipe, `output` holds another sweep or cannot be written to, or the
            executor refuses the jobs.
    """
    recipe = Path(request.recipe)
    validate_sweep([*request.words(recipe), *request.tail])
    files = [Path(path) for path, _ in request.mitigation_files]
    cells = {cell.name: cell for cell in single_cells(recipe, files, request.collect)}
    output = output.resolve()
    try:
        output.mkdir(parents=True, exist_ok=True)
        with _alone_in(output):
            run = _Run(cells, open_submission(output, request), engine, output)
            try:
                with Display(sys.stderr, len(cells)) as display:
                    run.to_the_end(display, (at_once or 1) if engine.name == "local" else len(cells))
            except KeyboardInterrupt:
                run.interrupted()
                raise
            return run.report()
    except OSError as error:
        raise CollectorsError(f"--output {output} cannot be used: {error}") from None


@contextlib.contextmanager
def _alone_in(output: Path) -> Iterator[None]:
    with (output / _LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise CollectorsError(f"another call is submitting to {output}; wait for it, or end it") from None
        yield


class _Run:
    """One call: what it knows of every cell."""

    def __init__(self, cells: Mapping[str, SingleCell], submission: Submission, engine: Engine, output: Path) -> None:
        self._cells = cells
        self._submission = submission
        self._engine = engine
        self._output = output
        self._judge = Judge(collector_names(), load_collector)
        self._outcomes: dict[str, Outcome] = {}
        self._running: dict[str, Entry] = {}
        self._waiting: list[str] = []
        self._folder: Path | None = None
        self._seen_ended: dict[str, float] = {}

    def to_the_end(self, display: Display, at_once: int) -> None:
        """Submit what lacks evidence, `at_once` jobs at a time, and wait until no job runs."""
        self._take_up(display)
        while self._running or self._waiting:
            free = at_once - len(self._running)
            if self._waiting and free > 0:
                self._submit(self._waiting[:free], display)
                del self._waiting[:free]
            self._count(display)
            for cell in self._ended():
                self._close(cell, display)
            if self._running:
                time.sleep(_POLL_S)
        self._count(display)
        self._write()

    def _take_up(self, display: Display) -> None:
        """Sort the cells: jobs that still run are waited for, verified evidence is kept, the rest is submitted."""
        earlier = {cell: entry for cell, entry in self._submission.cells.items() if cell in self._cells}
        ended = self._engine.ended(earlier)
        for cell in self._cells:
            entry = earlier.get(cell)
            if entry is None:
                self._waiting.append(cell)
            elif cell not in ended:
                self._running[cell] = entry
                display.say(cell, f"job {entry.job} of an earlier call still runs")
            else:
                outcome = self._judged(cell, entry)
                if outcome.done:
                    self._outcomes[cell] = outcome
                    display.say(cell, "kept: it ran, and its evidence holds")
                else:
                    self._waiting.append(cell)
                    display.say(cell, f"submitted again, since it is {outcome.state}: {outcome.reason}")

    def _submit(self, names: Sequence[str], display: Display) -> None:
        if self._folder is None:
            self._submission.calls += 1
            self._folder = self._output / "submitit" / str(self._submission.calls)
        # A folder of its own for each local job: the numbers of processes come again, and name files in it.
        groups = {self._folder / name: [name] for name in names}
        if self._engine.name == "slurm":
            groups = {self._folder: list(names)}
        for folder, group in groups.items():
            prepared = [self._prepared(name) for name in group]
            ids = self._engine.submit([job for _, job in prepared], folder)
            for name, (attempt, _), job_id in zip(group, prepared, ids, strict=True):
                entry = Entry(attempt, self._engine.name, job_id, str(folder), socket.gethostname())
                self._running[name] = self._submission.cells[name] = entry
                display.say(name, f"job {job_id} submitted; its log: {shown(log_of(entry))}")
            self._write()

    def _prepared(self, name: str) -> tuple[int, CellJob]:
        """A directory for the next attempt, with the recipe of this cell in it."""
        above = self._output / "jobs" / name
        above.mkdir(parents=True, exist_ok=True)
        attempt = 1 + max((int(path.name) for path in above.iterdir() if path.name.isdigit()), default=0)
        directory = above / str(attempt)
        directory.mkdir()
        recipe = directory / "recipe.yaml"
        recipe.write_text(self._cells[name].document)
        request = self._submission.request
        words = [*request.words(recipe), "--output", str(directory / RESULTS), "-v", *request.tail]
        return attempt, CellJob(name, str(directory), tuple(words), request.cwd, self._engine.variables())

    def _ended(self) -> list[str]:
        """Running cells whose jobs have ended, and whose files have had the time to become visible here."""
        now = time.monotonic()
        ended = self._engine.ended(self._running)
        self._seen_ended = {cell: self._seen_ended.get(cell, now) for cell in ended}
        return [
            cell
            for cell in self._running
            if cell in ended
            and (
                exit_code(self._attempt(cell, self._running[cell])) is not None
                or now - self._seen_ended[cell] >= self._engine.grace_s
            )
        ]

    def _close(self, cell: str, display: Display) -> None:
        entry = self._running.pop(cell)
        outcome = self._judged(cell, entry)
        self._outcomes[cell] = outcome
        satisfied = sum(finding.satisfied for finding in outcome.findings)
        evidence = f"{satisfied} of {len(outcome.findings)} requests for evidence satisfied"
        evidence = evidence if outcome.findings else "no evidence was asked for"
        display.say(cell, f"ran; {evidence}" if outcome.done else f"{outcome.state}: {outcome.reason}")
        self._count(display)
        self._write()

    def _judged(self, cell: str, entry: Entry) -> Outcome:
        lost = f"job {entry.job} ended without a result: {self._engine.state(entry)}"
        attempt = self._attempt(cell, entry)
        outcome = self._judge.judge(cell, self._cells[cell].requested, attempt, lost, log_of(entry))
        self._submission.cells[cell] = replace(entry, state=outcome.state, reason=outcome.reason)
        return outcome

    def _attempt(self, cell: str, entry: Entry) -> Path:
        return self._output / "jobs" / cell / str(entry.attempt)

    def _count(self, display: Display) -> None:
        done = sum(outcome.done for outcome in self._outcomes.values())
        display.count(done, len(self._running), len(self._outcomes) - done)

    def _write(self) -> None:
        self._submission.write(self._output)
        write_matrix(self._output, self._submission, list(self._cells), self._outcomes)

    def interrupted(self) -> None:
        """Local jobs end with the call that started them; those on Slurm go on."""
        self._write()
        ended = self._engine.end_local(self._running)
        left = [f"{cell} ({entry.job})" for cell, entry in self._running.items() if cell not in ended]
        if left:
            print(f"Still on Slurm: {', '.join(left)}; scancel ends them", file=sys.stderr)
        print("The same command continues", file=sys.stderr)

    def report(self) -> bool:
        """Print the evidence of all cells, and what is wrong with those that are not done."""
        outcomes = [self._outcomes[cell] for cell in self._cells]
        render([finding for outcome in outcomes for finding in outcome.findings], sys.stdout)
        done = sum(outcome.done for outcome in outcomes)
        for cell, outcome in zip(self._cells, outcomes, strict=True):
            if not outcome.done:
                print(printable(f"{cell}: {outcome.state}: {outcome.reason}"))
        write_beside(self._output, sys.stdout)
        print(f"{done} of {len(outcomes)} cells done. The matrix of evidence: {shown(self._output / MATRIX)}")
        if done < len(outcomes):
            print("The same command submits the others again")
        return done == len(outcomes)
