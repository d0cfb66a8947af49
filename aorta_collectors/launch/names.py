"""How the front-end is named in a command, and which directories it needs where nothing of ours is installed."""

from __future__ import annotations

import os

#: For an interpreter that has this package installed.
FRONTEND_MODULE = "aorta_collectors.frontend"

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def frontend_file() -> str:
    """The front-end for any other interpreter, which runs it by its path."""
    return os.path.join(_PACKAGE, "frontend", "by_path.py")


def package_directories() -> tuple[str, ...]:
    """What a container needs to see, at the same place as here: the package, and its schemas in a checkout."""
    schemas = os.path.join(os.path.dirname(_PACKAGE), "schemas")
    packaged = os.path.isdir(os.path.join(_PACKAGE, "schemas"))
    return (_PACKAGE,) if packaged else (_PACKAGE, schemas)
