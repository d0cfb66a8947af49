"""The output of a run's program: kept beside run.json, and its end shown where it failed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from aorta_collectors.errors import ArtifactError
from aorta_collectors.evidence.directory import Anchor
from aorta_collectors.investigate.files import BUNDLES, STDERR, STDOUT, SWEEP_LOG

_BLOCK_BYTES = 1 << 20
_TAIL_BYTES = 64 << 10


def keep_output(run: Path) -> None:
    """Put the program's own output beside run.json. Of a workload inside aorta's process, it is the sweep's."""
    for name in (STDOUT, STDERR):
        source = next(_outputs(run, name), None)
        if source is None:
            source = run / SWEEP_LOG if name == STDOUT else None
        _copy(run, source, name)


def _outputs(run: Path, name: str) -> Iterator[Path]:
    """Where the host, or a workload of ours, keeps the output of a program: a command's directory comes first."""
    bundles = run / BUNDLES
    yield from sorted(bundles.glob(f"*/*/trial_0/{name}"))
    yield from sorted(path for path in bundles.glob(f"**/trial_d0_m0_t0.{name}") if path.parent.name != "_subprocess")


def _copy(run: Path, source: Path | None, name: str) -> None:
    with Anchor(run).open(run) as target, target.create(name) as copy:
        if source is None:
            return
        try:
            with Anchor(run).open(source.parent) as directory, directory.opened(source.name) as fd:
                while block := os.read(fd, _BLOCK_BYTES):
                    copy.write(block)
        except ArtifactError as error:
            copy.write(f"not kept: {error}\n".encode())


def last_lines(path: Path, most: int) -> list[str]:
    """The last lines of a log that say anything. None where there is no log."""
    try:
        with Anchor(path.parent).open(path.parent) as directory, directory.opened(path.name) as fd:
            end = os.lseek(fd, 0, os.SEEK_END)
            text = os.pread(fd, _TAIL_BYTES, max(0, end - _TAIL_BYTES))
    except ArtifactError:
        return []
    return [line for line in text.decode("utf-8", errors="replace").splitlines() if line.strip()][-most:]


def last_line(path: Path) -> str:
    """The last line of a log, or ""."""
    return next(iter(last_lines(path, 1)), "")
