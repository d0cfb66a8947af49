"""The host's `aorta sweep` as click has it, for our command of that name."""

from __future__ import annotations

import click


def host_sweep() -> click.Group:
    """A group of commands. What it prints of its usage names the command as it was called."""
    from aorta.cli.sweep import sweep

    assert isinstance(sweep, click.Group)
    return sweep
