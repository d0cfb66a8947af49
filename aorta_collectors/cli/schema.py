"""`aorta-collectors schema [NAME]`: the formats of options and files, as JSON Schemas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from aorta_collectors.cli.output import Output
from aorta_collectors.cli.reading import output_options
from aorta_collectors.errors import CollectorsError
from aorta_collectors.printable import printable
from aorta_collectors.registry import collector_names, load_collector
from aorta_collectors.schema_check import load_schema, schema_names, suggestion


@click.command()
@click.argument("name", required=False)
@output_options
def schema(name: str | None, as_json: bool, output: Path | None) -> None:
    """Print the JSON Schema NAME; without NAME, say which there are.

    The name of an installed collector stands for the options of its collect: block. A schema that is printed needs no
    other one: those that it refers to are in it.

    Example: aorta-collectors schema layer_numerics.record -o record.schema.json

    Exit codes: 2 there is no such schema.
    """
    with Output(output) as out:
        if name is not None:
            out.json(_bundled(_named(name)))
            return
        listed = [{"name": each, **_head(load_schema(each))} for each in schema_names()]
        listed += [{"name": each, **_head(_options(each))} for each in sorted(collector_names())]
        if as_json:
            out.json(listed)
        else:
            from rich.table import Table
            from rich.text import Text

            table = Table(box=None, pad_edge=False, header_style="bold")
            table.add_column("name", style="cyan", overflow="fold")
            table.add_column("what it describes", overflow="fold")
            for each in listed:
                what = f"{each['title']}: {each['description']}" if each["description"] else each["title"]
                table.add_row(printable(each["name"]), Text(printable(what)))
            out.console().print(table)


def _named(name: str) -> Mapping[str, Any]:
    if name in schema_names():
        return load_schema(name)
    if name in collector_names():
        return load_collector(name).schema
    known = [*schema_names(), *sorted(collector_names())]
    raise click.UsageError(f"there is no schema {name!r}{suggestion(name, known) or '; there is: ' + ', '.join(known)}")


def _options(collector: str) -> Mapping[str, Any]:
    """What the list says of a collector, also of one that cannot be loaded."""
    what = f"collect: {collector}"
    try:
        found = load_collector(collector).schema
    except CollectorsError as error:
        return {"title": what, "description": f"cannot be loaded: {error}"}
    return {"title": what, "description": found.get("description", "The options of a recipe's collect: block.")}


def _head(content: Mapping[str, Any]) -> dict[str, str]:
    return {key: str(content.get(key, "")) for key in ("title", "description")}


def _bundled(content: Mapping[str, Any]) -> dict[str, Any]:
    """With the packaged schemas that it refers to by their $id, which find them in $defs (2020-12, 9.3)."""
    packaged = {str(each["$id"]): each for each in map(load_schema, schema_names())}
    wanted: dict[str, Any] = {}
    waiting = list(_references(content))
    while waiting:
        reference = waiting.pop()
        if reference in packaged and reference not in wanted and reference != content.get("$id"):
            wanted[reference] = packaged[reference]
            waiting += _references(packaged[reference])
    return {**content, "$defs": {**content.get("$defs", {}), **wanted}} if wanted else dict(content)


def _references(content: Any) -> Iterator[str]:
    if isinstance(content, Mapping):
        if isinstance(content.get("$ref"), str):
            yield content["$ref"]
        for value in content.values():
            yield from _references(value)
    elif isinstance(content, list | tuple):
        for value in content:
            yield from _references(value)
