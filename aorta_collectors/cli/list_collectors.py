"""`aorta-collectors list`: which collectors are installed, and whether they load and the host fits."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, version

import click

from aorta_collectors.errors import CollectorLoadError
from aorta_collectors.registry import collector_names, load_collector


@click.command("list")
def list_collectors() -> None:
    """List the installed collectors and the state of the host. Exits with 1 if one of them is not usable.

    Example: aorta-collectors list
    """
    usable = True
    for name in sorted(collector_names()):
        try:
            collector = load_collector(name)
            summary = (type(collector).__doc__ or "").strip().splitlines()[0]
            click.echo(f"{name:16} {summary}")
        except CollectorLoadError as error:
            usable = False
            click.echo(f"{name:16} NOT USABLE: {error}")
    state, fits = _host()
    click.echo(f"{'amd-aorta':16} {state}")
    sys.exit(0 if usable and fits else 1)


def _host() -> tuple[str, bool]:
    try:
        installed = version("amd-aorta")
    except PackageNotFoundError:
        return "not installed; standalone runs work without it", True
    from aorta_collectors.host.attach import HostMismatch, attach

    try:
        attach()
    except HostMismatch as error:
        return f"{installed}: {error}", False
    return f"{installed}: the plugin attaches", True
