"""The table of launchers, and which row a command's words name. A new launcher is one more row in `rows`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from aorta_collectors.launch.row import Launcher
from aorta_collectors.launch.rows.clusters import CLUSTERS
from aorta_collectors.launch.rows.containers import CONTAINERS
from aorta_collectors.launch.rows.elsewhere import ELSEWHERE
from aorta_collectors.launch.rows.environments import ENVIRONMENTS
from aorta_collectors.launch.rows.system import SYSTEM
from aorta_collectors.launch.rows.training import TRAINING

LAUNCHERS: tuple[Launcher, ...] = (*SYSTEM, *ENVIRONMENTS, *TRAINING, *CLUSTERS, *CONTAINERS, *ELSEWHERE)

BY_NAME: Mapping[tuple[str, ...], Launcher] = MappingProxyType(
    {tuple(name.split()): row for row in LAUNCHERS for name in (row.name, *row.aliases)}
)

#: `python -m MODULE` that is the launcher of this name.
MODULES: Mapping[str, str] = MappingProxyType(
    {"torch.distributed.run": "torchrun", "accelerate.commands.launch": "accelerate launch"}
)


class Found(NamedTuple):
    """The launcher that a command's words name.

    Attributes:
        after: Index of the first word behind its name.
    """

    launcher: Launcher
    after: int


def launcher_at(words: Sequence[str], index: int) -> Found | None:
    """The launcher whose name begins at `index`; the longest name wins."""
    name = os.path.basename(words[index])
    for length in (3, 2, 1):
        launcher = BY_NAME.get((name, *words[index + 1 : index + length]))
        if launcher is not None:
            return Found(launcher, min(index + length, len(words)))
    return None


def subcommands(name: str) -> list[str]:
    """What is known of a program that is a launcher with some of its subcommands only."""
    return sorted(" ".join(words) for words in BY_NAME if words[0] == name and len(words) > 1)
