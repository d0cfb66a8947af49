"""`aorta-collectors list`: which collectors are installed, and whether they load and the host fits."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, entry_points, version
from pathlib import Path
from typing import Any

import click

from aorta_collectors.cli.output import Output
from aorta_collectors.cli.reading import output_options
from aorta_collectors.errors import CollectorLoadError
from aorta_collectors.printable import printable
from aorta_collectors.registry import GROUP, collector_names, load_collector

#: What parts of this package need, each with how to get it, or what it is for.
_PACKAGES = {
    "torch": "what is observed runs on it",
    "torchrec": "for models of torchrec",
    "duckdb": "pip install 'aorta-collectors[report]'",
    "jinja2": "pip install 'aorta-collectors[report]'",
    "plotext": "pip install 'aorta-collectors[report]'",
    "plotly": "pip install 'aorta-collectors[report]'",
    "tensorboard": "pip install 'aorta-collectors[tensorboard]'",
    "submitit": "pip install 'aorta-collectors[submit]'",
}


@click.command("list")
@output_options
def list_collectors(as_json: bool, output: Path | None) -> None:
    """List the installed collectors, the state of the host, and which optional packages are there.

    Example: aorta-collectors list

    Exit codes: 1 a collector is not usable, or the plugin does not fit the host.
    """
    collectors = [_collector(name) for name in sorted(collector_names())]
    installed, state, fits = _host()
    packages = {name: _version(name) for name in _PACKAGES}
    with Output(output) as out:
        if as_json:
            host = {"name": "amd-aorta", "version": installed, "fits": fits, "state": state}
            out.json({"collectors": collectors, "host": host, "packages": packages})
        else:
            for each in collectors:
                what = each["summary"] if each["error"] is None else f"NOT USABLE: {each['error']}"
                click.echo(f"{each['name']:16} {printable(what)}", file=out.stream)
                if each["error"] is None:
                    source = f"{each['package']} {each['version']}, writes into {each['output_subdir']}/"
                    click.echo(f"{'':16} {printable(source)}", file=out.stream)
            click.echo(f"{'amd-aorta':16} {state if installed is None else f'{installed}: {state}'}", file=out.stream)
            for name, found in packages.items():
                click.echo(f"{name:16} {found or f'not installed; {_PACKAGES[name]}'}", file=out.stream)
    sys.exit(0 if fits and all(each["error"] is None for each in collectors) else 1)


def _collector(name: str) -> dict[str, Any]:
    entry = next(entry for entry in entry_points(group=GROUP) if entry.name == name)
    distribution = entry.dist
    found: dict[str, Any] = {
        "name": name,
        "package": distribution.name if distribution is not None else None,
        "version": distribution.version if distribution is not None else None,
        "output_subdir": None,
        "summary": None,
        "error": None,
    }
    try:
        collector = load_collector(name)
    except CollectorLoadError as error:
        return {**found, "error": str(error)}
    summary = ((type(collector).__doc__ or "").strip().splitlines() or [""])[0]
    return {**found, "output_subdir": collector.output_subdir, "summary": summary}


def _host() -> tuple[str | None, str, bool]:
    """Its version, a sentence, and whether that is well."""
    installed = _version("amd-aorta")
    if installed is None:
        return None, "not installed; standalone runs work without it", True
    from aorta_collectors.host.attach import HostMismatch, attach

    try:
        attach()
    except HostMismatch as error:
        return installed, str(error), False
    return installed, "the plugin attaches", True


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
