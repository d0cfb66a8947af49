"""Arming collectors in this process, once the program has imported torch."""

from __future__ import annotations

import functools
import importlib
import os
import sys
from collections.abc import Mapping, MutableMapping

from aorta_collectors.environment import (
    ARM_VARIABLE,
    ARMED_VARIABLE,
    SWITCH_VARIABLE,
    bootstrap_directory,
    children_can_arm,
)
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


def arm_when_torch_is_there(name: str, started_in: str | None = None, pid: int | None = None) -> None:
    """Have "module:function" called with the working directory of the start once torch has been imported.

    That happens once in a process, however often it is asked for: a program that goes through the front-end below an
    armed shell script comes here twice, from its sitecustomize and from the front-end.

    Args:
        started_in: Where the process was started, if that was before now. Relative paths in the configuration are
            meant from there, whatever the program does before it imports torch.
        pid: Of the process that was set up for arming, if this may be a fork of it.
    """
    # A program that another gives way to by exec has the PID of that one, and its environment.
    armed_here = f"{os.getpid() if pid is None else pid}:{_this_program()}:"
    armed = os.environ.get(ARMED_VARIABLE, "")
    names = armed.removeprefix(armed_here).split() if armed.startswith(armed_here) else []
    if name in names:
        return
    os.environ[ARMED_VARIABLE] = armed_here + " ".join([*names, name])
    if started_in is None:
        started_in = _working_directory()

    def arm() -> None:
        try:
            module, _, function = name.partition(":")
            getattr(importlib.import_module(module), function)(started_in)
        except Exception as error:
            sys.stderr.write(f"aorta-collectors: could not arm {name}: {type(error).__name__}: {error}\n")

    ImportWatch("torch", arm).start()


@functools.cache
def _this_program() -> str:
    """A word that is this program's as long as it runs, and that of its forks."""
    return os.urandom(4).hex()


def _working_directory() -> str:
    try:
        return os.getcwd()
    except OSError:
        return os.curdir  # it was removed; the program may yet go to another


def let_children_arm(name: str, environ: MutableMapping[str, str]) -> None:
    """Have Python processes that are started with these variables arm "module:function" at their start-up.

    A sitecustomize on PYTHONPATH does it; it leaves no entry in their sys.path.
    """
    if not children_can_arm():
        sys.stderr.write(
            f"aorta-collectors: the processes that this program starts are not observed, since {bootstrap_directory()} "
            f"has a {os.pathsep!r} in it, which PYTHONPATH cannot hold; put the package elsewhere\n"
        )
        return
    names = environ.get(ARM_VARIABLE, "").split()
    if name not in names:
        environ[ARM_VARIABLE] = " ".join([*names, name])
    site = bootstrap_directory()
    path = environ.get("PYTHONPATH", "")
    if site not in path.split(os.pathsep):
        environ["PYTHONPATH"] = os.pathsep.join(filter(None, (site, path)))
