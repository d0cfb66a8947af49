"""`aorta-collectors`: what can be asked after a run. One file a verb; this one turns our errors into exit codes."""

from __future__ import annotations

import errno
import importlib
import sys

import click

from aorta_collectors import __version__
from aorta_collectors.errors import CollectorsError
from aorta_collectors.printable import printable

#: The verbs, in the order of the help, each with the module of this folder and the command in there. A verb's module is
#: imported when the verb is used: what draws and queries takes a while to import.
VERBS = {
    "sweep": ("sweep", "sweep"),
    "verify": ("verify", "verify"),
    "first-bad": ("first_bad", "first_bad"),
    "trajectory": ("trajectory", "trajectory"),
    "layers": ("layers", "layers"),
    "compare": ("compare", "compare"),
    "profile": ("profile", "profile"),
    "tensors": ("tensors", "tensors"),
    "memory": ("memory", "memory"),
    "overlap": ("overlap", "overlap"),
    "merge": ("merge", "merge"),
    "query": ("query", "query"),
    "investigate": ("investigate", "investigate"),
    "export": ("export", "export"),
    "report": ("report", "report"),
    "watch": ("watch", "watch"),
    "top": ("top", "top"),
    "list": ("list_collectors", "list_collectors"),
    "check": ("check", "check"),
    "schema": ("schema", "schema"),
    "submit": ("submit", "submit"),
    "pack": ("pack", "pack"),
}


class _Verbs(click.Group):
    def list_commands(self, context: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in VERBS:
            return None
        module, command = VERBS[name]
        found = getattr(importlib.import_module(f"{__name__}.{module}"), command)
        assert isinstance(found, click.Command)
        return found

    def invoke(self, context: click.Context) -> object:
        try:
            return super().invoke(context)
        except CollectorsError as error:
            click.echo(f"Error: {printable(str(error), 10_000)} [{error.slug}]", err=True)
            sys.exit(error.exit_code)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
                raise
            click.echo(f"Error: {error.strerror}, at {error.filename or 'what is written'} [error]", err=True)
            sys.exit(1)


@click.group(cls=_Verbs)
@click.version_option(__version__, prog_name="aorta-collectors")
def main() -> None:
    """Verified evidence for aorta sweeps: check it, and read what it says.

    Example: aorta-collectors first-bad triage_results/NAN-17/training/20261129-101500

    Exit codes: 0 all is well, 1 a request for evidence is unsatisfied or something cannot be read, 2 wrong usage, 3
    what a verb was asked to look for is there (compare, tensors compare: a difference; first-bad, memory, overlap and
    watch with --exit-code; profile and top: an assertion that does not hold).
    """
