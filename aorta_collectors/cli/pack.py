"""`aorta-collectors pack -o nanlog.pyz`: one file to hand to a machine that has torch alone."""

from __future__ import annotations

import hashlib
import os
import shlex
from pathlib import Path

import click

from aorta_collectors import __version__
from aorta_collectors.cli.output import write_whole
from aorta_collectors.errors import CollectorsError
from aorta_collectors.packing import pack as packed


@click.command()
@click.option(
    "-o", "--output", required=True, type=click.Path(path_type=Path), help="The file to write, such as nanlog.pyz."
)
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
def pack(output: Path, force: bool) -> None:
    """Make one file that observes a program where nothing but torch is installed.

    `python FILE train.py` then does what `python -m aorta_collectors.layer_numerics train.py` does here. The same
    version of this package always makes the same bytes.

    Example: aorta-collectors pack -o nanlog.pyz
    """
    if output.is_dir():
        raise CollectorsError(f"{output} is a directory")
    if os.path.lexists(output) and not force:
        raise CollectorsError(f"{output} exists; --force replaces it")
    content = packed()
    write_whole(output, content)
    click.echo(f"{output}: aorta-collectors {__version__}, {len(content)} bytes")
    click.echo(f"sha256 {hashlib.sha256(content).hexdigest()}")
    click.echo(f"Run it where torch is: NANLOG_DIR=out python {shlex.quote(str(output))} train.py")
