"""Arming collectors in this process, once the program has imported torch."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping

from aorta_collectors.import_watch import ImportWatch

ARM_VARIABLE = "AORTA_COLLECTORS_ARM"
SWITCH_VARIABLE = "AORTA_COLLECTORS"


def arm_from_environment(environ: Mapping[str, str] | None = None) -> None:
    """Have each "module:function" named in AORTA_COLLECTORS_ARM called when torch has been imported.

    Never raises: a collector that cannot be armed says so on stderr, and the program runs without it.
    """
    environ = os.environ if environ is None else environ
    if environ.get(SWITCH_VARIABLE, "").lower() == "off":
        return
    for name in environ.get(ARM_VARIABLE, "").split():
        arm_when_torch_is_there(name)


def arm_when_torch_is_there(name: str) -> None:
    def arm() -> None:
        try:
            module, _, function = name.partition(":")
            getattr(importlib.import_module(module), function)()
        except Exception as error:
            sys.stderr.write(f"aorta-collectors: could not arm {name}: {type(error).__name__}: {error}\n")

    ImportWatch("torch", arm).start()
