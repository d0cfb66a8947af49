"""What all verbs that read captures share: their argument, their options, and the opened captures."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from aorta_collectors.analysis.captures import Captures
from aorta_collectors.analysis.database import Database
from aorta_collectors.analysis.search import captures_below
from aorta_collectors.cli.output import Output
from aorta_collectors.cli.progress import Bar
from aorta_collectors.printable import printable


@dataclass(frozen=True)
class Reading:
    """What a verb works on.

    Attributes:
        as_json: Whether the result is for a machine.
    """

    captures: Captures
    database: Database
    out: Output
    as_json: bool


def output_options(verb: Callable[..., Any]) -> Callable[..., Any]:
    """Add --json and -o, handed on as `as_json` and `output`."""
    for option in (
        click.option(
            "-o",
            "--output",
            type=click.Path(dir_okay=False, path_type=Path),
            help="Write to this file, which is replaced, instead of to the terminal.",
        ),
        click.option("--json", "as_json", is_flag=True, help="Print JSON."),
    ):
        verb = option(verb)
    return verb


def selecting(verb: Callable[..., Any]) -> Callable[..., Any]:
    """Add --cell, --trial and --rank, handed on as `cell`, `trial` and `rank`, which are tuples."""
    for option in (
        click.option("--rank", multiple=True, type=click.IntRange(min=0), help="Only of this rank (repeatable)."),
        click.option("--trial", multiple=True, help="Only of this trial, such as 0 or d0_m0_t0 (repeatable)."),
        click.option("--cell", multiple=True, help="Only of this cell (repeatable)."),
    ):
        verb = option(verb)
    return verb


def reading(verb: Callable[..., Any]) -> Callable[..., Any]:
    """Make a verb of a function that takes a `Reading` and its own options: PATH, a selection, --json and -o.

    The function may return an exit code.
    """

    @click.argument("path", type=click.Path(exists=True, path_type=Path))
    @selecting
    @output_options
    @functools.wraps(verb)
    def wrapped(
        path: Path,
        cell: tuple[str, ...],
        trial: tuple[str, ...],
        rank: tuple[int, ...],
        as_json: bool,
        output: Path | None,
        **own: Any,
    ) -> Any:
        captures = captures_below(path).only(cell, trial, rank)
        tell_problems(captures)
        with Output(output) as out, Bar("reading records") as bar, Database(captures, bar) as database:
            code = verb(Reading(captures, database, out, as_json), **own)
        if code:  # not before what was written to a file is there
            sys.exit(code)

    return wrapped


def tell_problems(captures: Captures) -> None:
    """What could not be read, on stderr: the rest is shown all the same."""
    for problem in captures.problems:
        click.echo(f"not read: {printable(problem)}", err=True)
