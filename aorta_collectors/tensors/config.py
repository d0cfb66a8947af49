"""The configuration of one process, as a value: which tensors are observed, in which steps, and what is kept."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import ClassVar

from aorta_collectors.tensors.names import AFTER_BACKWARD, AFTER_FORWARD, PREFIX
from aorta_collectors.torch_collector.configuration import Configuration
from aorta_collectors.torch_collector.selection import faults_of_steps, matching, names_step

OPTIONS_SCHEMA = "tensors.options"


@dataclass(frozen=True)
class Config(Configuration):
    """What is in force; the fields are the options of schemas/tensors.options.json, which documents them.

    Attributes:
        scope: None for the model, each module without parts, and all parameters.
        steps: None for all of them.
    """

    options_schema: ClassVar[str] = OPTIONS_SCHEMA
    prefix: ClassVar[str] = PREFIX

    points: tuple[str, ...] = (AFTER_FORWARD, AFTER_BACKWARD)
    scope: tuple[str, ...] | None = None
    keep: str = "digest"
    max_bytes: int = 256 << 20
    steps: tuple[str, ...] | None = None

    @property
    def keeps_values(self) -> bool:
        return self.keep == "values"

    def observes_step(self, step: int) -> bool:
        """Whether tensors of a step are observed. What comes before the first is, where no steps are named."""
        return names_step(self.steps, step)

    def patterns_of(self, path: str) -> list[str]:
        """The patterns of `scope` that a module is meant by.

        Args:
            path: Below the model; empty for that itself.
        """
        return matching(self.scope, path)

    def faults(self, given: Collection[str]) -> Iterator[tuple[str, str]]:
        if "max_bytes" in given and not self.keeps_values:
            yield "max_bytes", f"has no effect without keep: values; keep is {self.keep}"
        yield from faults_of_steps(self.steps)
