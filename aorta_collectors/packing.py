"""One file that python runs, holding what a machine with torch alone needs to observe a program.

The file is a zip archive with a __main__.py, as zipapp makes them. It is written here, entry by entry and uncompressed,
so that its bytes depend on the package alone: zipapp keeps the files' times, and compression differs between zlibs.
"""

from __future__ import annotations

import ast
import io
import zipfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from aorta_collectors.errors import CollectorsError
from aorta_collectors.schema_check import load_schema_bytes, schema_names

_PACKAGE = "aorta_collectors"
_MAIN = "aorta_collectors.layer_numerics.packed"
# What nothing imports: it is named in the environment, or found by the interpreter at its start-up.
_STARTED = ("aorta_collectors.layer_numerics.arming", "aorta_collectors.frontend.site.sitecustomize")
_TIME = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip file can say


def pack() -> bytes:
    """The file's content: the same for the same version of the package, wherever it is made.

    Raises:
        CollectorsError: The package is not installed as its wheel has it.
    """
    entries = {
        **{f"{_PACKAGE}/{name}": content for name, content in sorted(_modules().items())},
        **{f"{_PACKAGE}/schemas/{name}.json": load_schema_bytes(name) for name in schema_names()},
        "LICENSE": _licence().encode(),
    }
    entries["__main__.py"] = entries.pop(f"{_PACKAGE}/layer_numerics/packed.py")
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as stored:
        for name, content in entries.items():
            entry = zipfile.ZipInfo(name, _TIME)
            entry.create_system = 3  # of Unix, also where it is made elsewhere
            entry.external_attr = 0o100644 << 16
            stored.writestr(entry, content)
    return archive.getvalue()


def _modules() -> dict[str, bytes]:
    """By path below the package: the modules that observing a program can import."""
    root = Path(__file__).parent
    found: dict[str, bytes] = {}
    waiting = [_MAIN, *_STARTED]
    while waiting:
        name = waiting.pop()
        path = _file(root, name)
        if path is None or (inner := path.relative_to(root).as_posix()) in found:
            continue
        found[inner] = path.read_bytes()
        waiting += _imported(found[inner])
        while "." in name:
            name = name.rpartition(".")[0]
            waiting.append(name)
    return found


def _file(root: Path, module: str) -> Path | None:
    """Of one of our modules or packages; None for others, and for names that are no module."""
    head, *parts = module.split(".")
    if head != _PACKAGE:
        return None
    place = root.joinpath(*parts)
    candidates = (place.with_suffix(".py") if parts else place / "__init__.py", place / "__init__.py")
    return next((path for path in candidates if path.is_file()), None)


def _imported(source: bytes) -> Iterator[str]:
    """Names that a module imports anywhere in it; of `from a import b`, both a and a.b."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _licence() -> str:
    try:
        text = distribution("aorta-collectors").read_text("licenses/LICENSE")
    except PackageNotFoundError:
        text = None
    if text is None:
        raise CollectorsError(
            "the installed aorta-collectors lacks its licence, which goes with every copy; reinstall it"
        )
    return text
