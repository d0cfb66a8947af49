"""Bringing the evidence of all ranks together when a sweep itself runs under torchrun.

Every rank runs the whole sweep, but only rank 0 has a results directory. Other ranks write into a temporary directory
of their own. When the workload has run, rank 0 says through the process group's store where its directory is, and
each other rank copies its files there and says so. What rank 0 finds then is told to all, since each rank decides for
itself whether the sweep goes on (`stop_after`). No collective is used and nothing waits while the model trains,
so ranks that take different paths cannot dead-lock over evidence.
"""

from __future__ import annotations

import datetime
import functools
import json
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from aorta_collectors.api import Capture, Collector
from aorta_collectors.environment import whole_number
from aorta_collectors.errors import ArtifactError
from aorta_collectors.evidence.directory import Anchor

# A rank may write gigabytes of records; one whose workload failed must not hold up the others' end.
_WAIT = datetime.timedelta(seconds=60)
_WAIT_AFTER_FAILURE = datetime.timedelta(seconds=2)
# Rank 0 reads all of the records first.
_WAIT_FOR_VERDICT = datetime.timedelta(minutes=10)


class Lacking(NamedTuple):
    """A request for evidence that a pass may not go without, and was not satisfied."""

    collector: str
    verdict: str
    reason: str


class RankExchange:
    """One trial's exchange. `key` is the same on all ranks and different for each trial.

    Attributes:
        is_first: Whether this process is the rank that owns the results.
        world_size: Ranks of the launcher.
    """

    def __init__(self, key: str) -> None:
        self._key = f"aorta_collectors/{key}"
        self.rank = whole_number("RANK", 0)
        self.world_size = max(1, whole_number("WORLD_SIZE", 1))
        self.is_first = self.rank == 0
        self._scratch: dict[str, Path] = {}
        self._run_ids: dict[str, str] = {}

    def capture_for(self, collector: Collector, directory: Path | None, run_id: str) -> Callable[[], Capture]:
        """Where this rank writes, found out when it first does."""

        @functools.cache
        def capture() -> Capture:
            if directory is not None:
                return Capture(directory, run_id)
            scratch = Path(tempfile.mkdtemp(prefix=f"aorta_{collector.name}_rank{self.rank}_"))
            self._scratch[collector.output_subdir] = scratch
            self._run_ids[collector.output_subdir] = run_id
            return Capture(scratch, run_id)

        return capture

    def gather(self, directory: Path, *, failed: bool) -> list[str]:
        """On rank 0: let the others copy their files to `directory`, and wait for them, a minute at most.

        After a failure of the workload the wait is short: another rank may not be there any more.

        Returns:
            The run ids that the other ranks wrote under.
        """
        store = _store()
        if store is None or self.world_size == 1:
            return []
        name = directory.name
        run_ids: list[str] = []
        try:
            store.set(f"{self._key}/{name}", str(directory))
            for rank in range(1, self.world_size):
                store.wait([f"{self._key}/{name}/{rank}"], _WAIT_AFTER_FAILURE if failed else _WAIT)
                run_ids.append(store.get(f"{self._key}/{name}/{rank}").decode())
        except RuntimeError:
            pass  # verification names the ranks that are missing
        return run_ids

    def hand_over(self, *, failed: bool) -> None:
        """On the other ranks: copy what was written to rank 0's directory."""
        store = _store()
        for name, scratch in self._scratch.items():
            try:
                if store is not None:
                    store.wait([f"{self._key}/{name}"], _WAIT_AFTER_FAILURE if failed else _WAIT)
                    target = Path(store.get(f"{self._key}/{name}").decode())
                    with Anchor(target).open(target) as directory:
                        for path in sorted(scratch.iterdir()):
                            directory.copy_in(path)
                    store.set(f"{self._key}/{name}/{self.rank}", self._run_ids[name])
                    shutil.rmtree(scratch, ignore_errors=True)
            except (RuntimeError, OSError, ArtifactError) as error:
                sys.stderr.write(
                    f"aorta-collectors: rank {self.rank} could not hand its evidence over ({error}); "
                    f"it is in {scratch}\n"
                )
        self._scratch = {}

    def tell(self, lacking: list[Lacking], *, failed: bool) -> None:
        """On rank 0: let the others know what is lacking, and wait until they do: the store may end with this process.

        A rank that never asks, since it has ended, holds nobody up for longer than a minute.
        """
        store = _store()
        if store is None or self.world_size == 1:
            return
        try:
            store.set(f"{self._key}/lacking", json.dumps(lacking))
            for rank in range(1, self.world_size):
                store.wait([f"{self._key}/heard/{rank}"], _WAIT_AFTER_FAILURE if failed else _WAIT)
        except RuntimeError:
            pass  # that rank has ended, and decides nothing any more

    def hear(self, *, failed: bool) -> list[Lacking]:
        """On the other ranks: what rank 0 found lacking. A failed trial stays one, and does not wait for that."""
        store = _store()
        if store is None:
            return []
        lacking: list[Lacking] = []
        try:
            if not failed:
                store.wait([f"{self._key}/lacking"], _WAIT_FOR_VERDICT)
                lacking = [Lacking(*entry) for entry in json.loads(store.get(f"{self._key}/lacking"))]
            store.set(f"{self._key}/heard/{self.rank}", "1")
        except RuntimeError as error:
            sys.stderr.write(f"aorta-collectors: rank {self.rank} does not know rank 0's verdict ({error})\n")
        return lacking


def _store() -> Any:
    """The default process group's store, if the workload has made a group."""
    if "torch" not in sys.modules:
        return None
    import torch.distributed as dist
    from torch.distributed import distributed_c10d

    if not dist.is_available() or not dist.is_initialized():
        return None
    return distributed_c10d._get_default_store()
