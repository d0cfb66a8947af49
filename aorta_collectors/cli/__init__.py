"""`aorta-collectors`: what can be asked after a run. One file a verb; this one turns our errors into exit codes."""

from __future__ import annotations

import sys

import click

from aorta_collectors import __version__
from aorta_collectors.cli.list_collectors import list_collectors
from aorta_collectors.cli.merge import merge
from aorta_collectors.cli.pack import pack
from aorta_collectors.cli.submit import submit
from aorta_collectors.cli.verify import verify
from aorta_collectors.errors import CollectorsError
from aorta_collectors.printable import printable


class _Group(click.Group):
    def invoke(self, context: click.Context) -> object:
        try:
            return super().invoke(context)
        except CollectorsError as error:
            click.echo(f"Error: {printable(str(error), 10_000)} [{error.slug}]", err=True)
            sys.exit(error.exit_code)


@click.group(cls=_Group)
@click.version_option(__version__, prog_name="aorta-collectors")
def main() -> None:
    """Verified evidence for aorta sweeps.

    Example: aorta-collectors verify triage_results/NAN-17/training/20261129-101500

    Exit codes: 0 all is well, 1 a request for evidence is unsatisfied or a run cannot be read, 2 wrong usage.
    """


main.add_command(verify)
main.add_command(list_collectors)
main.add_command(pack)
main.add_command(merge)
main.add_command(submit)
