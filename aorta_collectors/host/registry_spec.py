"""The host's collector registry, with ours able to attach to a command."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from aorta_collectors.host.attachment import Attachment


def registry(attachment: Attachment, original: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """While a trial of ours runs, its collectors wrap the argv and verify; at any other time the host's own registry.

    Options are validated by the preflight, which knows where in the recipe they stand.
    """
    specs = original()
    trial = attachment.current
    if trial is None:
        return specs

    def wrap_for(name: str) -> Callable[..., list[str]]:
        def wrap(argv: list[str], out_dir: Path, options: Mapping[str, str], env: object = None) -> list[str]:
            return trial.wrap(name, argv, out_dir)

        return wrap

    def summarize_for(name: str) -> Callable[[Path], dict[str, Any]]:
        return lambda _directory: trial.verified(name)

    for name in trial.active:
        if name in specs:
            specs[name] = replace(
                specs[name],
                output_subdir=trial.collector(name).output_subdir,
                wrap=wrap_for(name),
                summarize=summarize_for(name),
            )
    return specs
