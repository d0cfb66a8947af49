"""Arming collectors in this process, once the program has imported torch."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping, MutableMapping

from aorta_collectors.environment import ARM_VARIABLE, ARMED_VARIABLE, SWITCH_VARIABLE, bootstrap_directory
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


def let_children_arm(name: str, environ: MutableMapping[str, str]) -> None:
    """Have Python processes that are started with these variables arm "module:function" at their start-up.

    A sitecustomize on PYTHONPATH does it; it leaves no entry in their sys.path.
    """
    names = environ.get(ARM_VARIABLE, "").split()
    if name not in names:
        environ[ARM_VARIABLE] = " ".join([*names, name])
    site = bootstrap_directory()
    path = environ.get("PYTHONPATH", "")
    if site not in path.split(os.pathsep):
        environ["PYTHONPATH"] = os.pathsep.join(filter(None, (site, path)))
