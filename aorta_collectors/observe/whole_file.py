"""Files that are there whole or not at all, whoever writes them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Have a file written under another name first, so that whoever finds it finds it whole.

    Args:
        write: Writes a file at the path that it is given. What it raises leaves nothing behind.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        write(partial)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
