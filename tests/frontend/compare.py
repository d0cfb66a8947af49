"""Running a program twice, by python alone and through the front-end, and comparing all that can be seen."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from pathlib import Path

from tests.support import PYTHON, Ran, run

FRONTEND = "aorta_collectors.frontend"

# Says everything about its surroundings that a program may look at.
PROBE = """
import json, os, sys
spec = __spec__
print(json.dumps({
    "argv": sys.argv,
    "path": sys.path,
    "name": __name__,
    "file": globals().get("__file__"),
    "package": __package__,
    "spec": None if spec is None else [type(spec).__name__, spec.name, spec.origin],
    "doc": __doc__,
    "main": sys.modules["__main__"].__dict__ is globals(),
    "builtins": type(__builtins__).__name__,
    "annotations": globals().get("__annotations__"),
    "cached": globals().get("__cached__", "absent"),
    "flags": list(sys.flags),
    "warnoptions": sys.warnoptions,
    "cwd": os.getcwd(),
    "torch": "torch" in sys.modules,
    "env": sorted(name for name in os.environ if name.startswith("AORTA")),
}, indent=1))
sys.stderr.write("to stderr\\n")
"""


def bare_and_framed(
    cwd: Path, words: list[str], flags: tuple[str, ...] = (), env: Mapping[str, str] | None = None
) -> tuple[Ran, Ran]:
    """The same program run by python alone, and through the front-end."""
    bare = run([PYTHON, *flags, *words], cwd, env)
    framed = run([PYTHON, *flags, "-m", FRONTEND, *words], cwd, env)
    return bare, framed


def same(cwd: Path, words: list[str], flags: tuple[str, ...] = (), env: Mapping[str, str] | None = None) -> Ran:
    """Assert that the front-end makes no difference; returns what both did."""
    bare, framed = bare_and_framed(cwd, words, flags, env)
    assert _without_addresses(framed.out) == _without_addresses(bare.out)
    assert _without_addresses(framed.err) == _without_addresses(bare.err)
    assert framed.code == bare.code
    return bare


def _without_addresses(text: str) -> str:
    return re.sub(r"0x[0-9a-f]+", "0x", text)


def script(path: Path, source: str = PROBE) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(source))
    return path
