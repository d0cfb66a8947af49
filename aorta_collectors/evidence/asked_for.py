"""What a trial was asked for, and whether a receipt can be the answer to that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aorta_collectors.api import Verdict
from aorta_collectors.environment import switched_off
from aorta_collectors.evidence.receipt import Receipt


@dataclass(frozen=True)
class AskedFor:
    """A request for one collector's evidence in one trial. What is None is not known, and contradicts no receipt.

    Attributes:
        options: The collect: block.
        off: Whether the trial ran uninstrumented.
        may_prune: Whether a retain: block may have removed artifacts.
    """

    options: Mapping[str, str] | None
    off: bool | None
    may_prune: bool | None

    @classmethod
    def by_record(cls, config: Mapping[str, Any], collector: str) -> AskedFor:
        """As the configuration in the host's record of the trial says, from which a workload may have taken things."""
        options, environment = config.get("_aorta_collect_options"), config.get("_aorta_trial_env")
        of_collector = options.get(collector) or {} if isinstance(options, Mapping) else None
        if not isinstance(environment, Mapping):  # the host sets it in every trial
            return cls(of_collector, None, None)
        extras = config.get("_aorta_probe_extras")
        levels = extras.get("retain") if isinstance(extras, Mapping) else None
        may_prune = isinstance(levels, Mapping) and any(level != "full" for level in levels.values())
        return cls(of_collector, switched_off(environment), may_prune)

    def contradiction(self, receipt: Receipt) -> str:
        """What the trial has instead of an answer, as "a receipt that ..."; empty where the receipt can be one."""
        is_off = receipt.verdict == Verdict.OFF.value
        if self.options is not None and receipt.options != self.options:
            return "a receipt for other options"
        if receipt.on_missing != receipt.options.get("on_missing", "error"):
            return f"a receipt that says on_missing: {receipt.on_missing}, which its options do not"
        if self.off is not None and is_off != self.off:
            switched = "were not" if is_off else "were"
            return f"a receipt that says {receipt.verdict}, although collectors {switched} switched off"
        if receipt.verdict == Verdict.PRUNED.value and self.may_prune is False:
            return "a receipt that says pruned, although no retain: block removes anything"
        return ""
