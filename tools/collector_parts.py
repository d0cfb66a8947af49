"""What the pages of several collectors are made of: options, the command without a sweep, files, and nested fields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from schema_tables import properties
from tables import escaped, table

from aorta_collectors.frontend.standalone import Standalone
from aorta_collectors.schema_check import load_schema

#: In a sweep alone: nobody verifies elsewhere.
_OF_A_SWEEP = "on_missing"


class File(NamedTuple):
    """A file that a process leaves: its name, when it is there, and what is in it."""

    name: str
    where: str
    what: str


def collect_block(schema_name: str) -> Iterator[str]:
    """The options of a recipe's block."""
    options = load_schema(schema_name)
    yield "## The collect: block\n"
    yield options["description"] + "\n"
    yield from properties(options["properties"], default=True)
    yield ""


def alone(
    schema_name: str, command: Standalone, collector: str, prefix: str, own: Sequence[str], closing: str
) -> Iterator[str]:
    """Options of the standalone front-end: it has one for each of the block but on_missing, in the same order.

    Args:
        collector: Name of its package below aorta_collectors.
        prefix: Of its variables.
        own: Options that are none of the block's.
        closing: What is said of those.
    """
    of_schema = [name for name in load_schema(schema_name)["properties"] if name != _OF_A_SWEEP]
    options = [option for option in command.options if option not in own]
    rows = [
        [f"`{option}`", f"`{prefix}{name.upper()}`", f"`{name}`"]
        for option, name in zip(options, of_schema, strict=True)
    ]
    yield "### Alone\n"
    yield (
        f"`python -m aorta_collectors.{collector} [OPTION VALUE ...] script.py [args...]`, or `-m module`, or "
        "`-c code`. An option wins over its variable. A sweep sets the variables itself, and removes those that the "
        "block does not have.\n"
    )
    yield from table(("option", "variable", "as in the block"), rows)
    yield f"\n{closing}\n"


def directory(variable: str, default: str) -> str:
    """What is said of --dir."""
    return (
        f"`--dir`, or `{variable}`, names the output directory, by default `{default}`; the sweep owns it in a trial."
    )


def files(found: Sequence[File], about: str) -> Iterator[str]:
    """The table of files.

    Args:
        about: Where they are, and what holds for all of them.
    """
    yield "## Files\n"
    yield about + "\n"
    yield from table(("file", "where", "what"), [(f"`{file.name}`", file.where, file.what) for file in found])
    yield ""


def whole(schema_name: str, title: str = "") -> Iterator[str]:
    """A section for a file or a line: its fields, and those of its fields.

    Args:
        title: Instead of the schema's own.
    """
    schema = load_schema(schema_name)
    yield f"## {escaped(title or schema['title'])}\n"
    yield schema["description"] + "\n"
    yield from properties(schema["properties"], defs=schema.get("$defs"))
    yield ""
    parts: dict[int, tuple[list[str], Mapping[str, Any]]] = {}
    for path, inner in _parts(schema["properties"], schema.get("$defs", {}), ""):
        parts.setdefault(id(inner), ([], inner))[0].append(path)
    # Fields of one kind have one table.
    for paths, inner in parts.values():
        yield f"### {', '.join(paths)}\n"
        yield from properties(inner, defs=schema.get("$defs"))
        yield ""


def _parts(entries: Mapping[str, Any], defs: Mapping[str, Any], above: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each field that is an object, a list of objects, or objects by name, with its fields; and likewise of those."""
    for name, entry in entries.items():
        found = [
            defs.get(str(each.get("$ref", "")).rpartition("/")[2], each)
            for each in (entry, entry.get("items"), entry.get("additionalProperties"))
            if isinstance(each, dict)
        ]
        inner = next((each["properties"] for each in found if "properties" in each), None)
        if inner is not None:
            yield f"{above}{name}", inner
            yield from _parts(inner, defs, f"{above}{name}.")
