"""One collector's part in a trial: what was asked for, how it was launched, and what was found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aorta_collectors.api import Collector, Options
from aorta_collectors.errors import CollectorsError
from aorta_collectors.evidence.trial import Checked
from aorta_collectors.launch.value import Launch


@dataclass
class Asked:
    """A request for one kind of evidence, filled in as its trial goes on.

    Attributes:
        run_ids: What its artifacts may carry: this process's own id first, then those of the other ranks.
        launch: The command as this collector left it; None where none was planned.
        refused: Why the collector cannot be attached to the command, or "".
        checked: What verification found; None before it.
    """

    collector: Collector
    options: Options
    run_ids: list[str]
    launch: Launch | None = None
    refused: str = ""
    checked: Checked | None = None

    @property
    def run_id(self) -> str:
        return self.run_ids[0]

    @property
    def required(self) -> bool:
        """Whether a pass without this evidence becomes an error."""
        return self.options.on_missing == "error"


def validated(collector: Collector, options: Mapping[str, Any]) -> Options:
    """The options of one collector in the host's request, which may come from a program and not from a recipe.

    Raises:
        ValueError: They cannot be honoured; what the host expects of a request that it cannot run.
    """
    try:
        return collector.validate(options.get(collector.name))
    except CollectorsError as error:
        raise ValueError(f"collect.{collector.name}.{error}") from None
