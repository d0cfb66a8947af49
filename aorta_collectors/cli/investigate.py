"""`aorta-collectors investigate`: a question answered by controlled runs. One file a verb, imported when it is used."""

from __future__ import annotations

import importlib

import click

#: The verbs, each with the module of this folder and the command in there.
_VERBS = {
    "new": ("investigate_new", "new"),
    "run": ("investigate_run", "run"),
    "report": ("investigate_report", "report"),
    "verify": ("investigate_verify", "verify"),
    "open": ("investigate_open", "open_"),
}


class _Verbs(click.Group):
    def list_commands(self, context: click.Context) -> list[str]:
        return list(_VERBS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in _VERBS:
            return None
        module, command = _VERBS[name]
        found = getattr(importlib.import_module(f"aorta_collectors.cli.{module}"), command)
        assert isinstance(found, click.Command)
        return found


@click.group(cls=_Verbs)
def investigate() -> None:
    """Answer a question about a program by controlled runs, and keep the evidence.

    A question has a baseline and, where two things are compared, a candidate. `new` declares what is run and in which
    order, `run` runs it, `report` says what came out, and `verify` whether everything is still as it was recorded.

    Example:

    \b
      aorta-collectors investigate new nan-42 --question "Is my graph the same as eager?" \\
        --criterion "every output agrees bit for bit" --bitwise \\
        --baseline "python eager.py" --candidate "python graph.py"
      aorta-collectors investigate run nan-42
      aorta-collectors investigate report nan-42
    """
