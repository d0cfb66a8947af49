"""Arming collectors in this process, once the program has imported torch."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping

from aorta_collectors.environment import ARM_VARIABLE, ARMED_VARIABLE, SWITCH_VARIABLE
from aorta_collectors.import_watch import ImportWatch


def arm_from_environment(environ: Mapping[str, str] | None = None) -> None:
    """Have each "module:function" named in AORTA_COLLECTORS_ARM called once torch has been imported.

    Never raises: a collector that cannot be armed says so on stderr, and the program runs without it.
    """
    environ = os.environ if environ is None else environ
    if environ.get(SWITCH_VARIABLE, "").lower() == "off":
        return
    for name in environ.get(ARM_VARIABLE, "").split():
        arm_when_torch_is_there(name)


def arm_when_torch_is_there(name: str) -> None:
    """Have "module:function" called with the present working directory once torch has been imported.

    That happens once in a process, however often it is asked for.

    A program that goes through the front-end below an armed shell script comes here twice: from its sitecustomize, and
    from the front-end.
    """
    pid, _, armed = os.environ.get(ARMED_VARIABLE, "").partition(":")
    names = armed.split() if pid == str(os.getpid()) else []
    if name in names:
        return
    os.environ[ARMED_VARIABLE] = f"{os.getpid()}:{' '.join([*names, name])}"
    # Relative paths in the configuration are meant from here, whatever the program does before it imports torch.
    started_in = os.getcwd()

    def arm() -> None:
        try:
            module, _, function = name.partition(":")
            getattr(importlib.import_module(module), function)(started_in)
        except Exception as error:
            sys.stderr.write(f"aorta-collectors: could not arm {name}: {type(error).__name__}: {error}\n")

    ImportWatch("torch", arm).start()
