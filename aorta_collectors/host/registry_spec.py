"""The host's collector registry, with ours able to attach to a command."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from aorta.run import collectors

from aorta_collectors.host.attachment import Attachment


def registry(attachment: Attachment, original: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """While a trial of ours runs, its collectors wrap the argv and verify; at any other time nothing attaches them.

    Options are validated by the preflight, which knows where in the recipe they stand.
    """
    specs = original()
    for name in sorted(collectors.KNOWN_RECIPES - specs.keys()):
        specs[name] = collectors.CollectorSpec(name, None, lambda options: dict(options or {}))
    trial = attachment.current
    if trial is None:
        return specs
    specs = trial.wrapped_specs(specs)

    def summarize_for(name: str) -> Callable[..., dict[str, Any]]:
        return lambda _directory: dict(trial.verified(name).metrics)

    for name in trial.active:
        if name in specs:
            specs[name] = replace(specs[name], summarize=summarize_for(name))
    return specs
