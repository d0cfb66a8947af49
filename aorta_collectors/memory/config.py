"""The configuration of one process, as a value: at which points memory is looked at, in which steps, how closely."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from aorta_collectors.memory.names import OPTIONS_SCHEMA, POINTS, PREFIX
from aorta_collectors.torch_collector.configuration import Configuration
from aorta_collectors.torch_collector.selection import faults_of_steps, matching, names_step


@dataclass(frozen=True)
class Config(Configuration):
    """What is in force; the fields are the options of schemas/memory.options.json, which documents them.

    Attributes:
        scope: None for no modules.
        steps: None for all of them.
    """

    options_schema: ClassVar[str | Mapping[str, Any]] = OPTIONS_SCHEMA
    prefix: ClassVar[str] = PREFIX

    points: tuple[str, ...] = POINTS
    scope: tuple[str, ...] | None = None
    steps: tuple[str, ...] | None = None
    detail: str = "pools"
    stacks: int = 10

    @property
    def reads_pools(self) -> bool:
        return self.detail == "pools"

    def faults(self, given: Collection[str]) -> Iterator[tuple[str, str]]:
        yield from faults_of_steps(self.steps)

    def looks_at_step(self, step: int) -> bool:
        """Whether a step is asked for. What comes before the first is, where no steps are named."""
        return names_step(self.steps, step)

    def patterns_of(self, path: str) -> list[str]:
        """The patterns of `scope` that a module is meant by.

        Args:
            path: Below the model; "" is the model itself.
        """
        return matching(self.scope, path)
