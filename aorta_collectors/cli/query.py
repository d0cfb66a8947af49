"""`aorta-collectors query PATH SQL`: what no other verb answers."""

from __future__ import annotations

import dataclasses
import shlex
import sys
from collections.abc import Callable, Mapping
from typing import TextIO

import click

from aorta_collectors.analysis.query import EXAMPLES, QueryError, ask, views
from aorta_collectors.cli.reading import Reading, reading
from aorta_collectors.printable import printable
from aorta_collectors.report import query as shown

_STREAMED: Mapping[str, Callable[[TextIO, shown.Columns, shown.Rows], None]] = {
    "csv": shown.write_csv,
    "json": shown.write_json,
    "jsonl": shown.write_json_lines,
    "markdown": shown.write_markdown,
}


@click.command()
@reading
@click.argument("sql", required=False)
@click.option("-f", "--file", type=click.File(), help="Take the SQL from this file; - is stdin.")
@click.option("--format", "format_", type=click.Choice(["table", *_STREAMED]), help="Default: table.")
def query(asked: Reading, sql: str | None, file: TextIO | None, format_: str | None) -> None:
    """Ask the captures below PATH in SQL, as DuckDB understands it.

    The views are records, summaries, receipts and trials; without SQL, their columns are described. The SQL - is read
    from stdin. --cell, --trial and --rank leave out the rest before the query is asked.

    The SQL is one statement that reads. It may read other files of yours too (read_csv, read_parquet). It writes
    nothing: -o does that. A table shows at most 1000 rows; every other format is written as it is read, whatever its
    size. JSON has NaN, Inf and -Inf as text.

    Example: aorta-collectors query RUN_DIR "SELECT cell, min(step) FROM records WHERE bad GROUP BY cell"

    Exit codes: 0 answered, also with no rows; 2 the SQL is wrong.
    """
    if sql is not None and file is not None:
        raise click.UsageError("SQL and --file exclude each other")
    if asked.as_json and format_ not in (None, "json"):
        raise click.UsageError(f"--json and --format {format_} exclude each other")
    text = file.read() if file is not None else sys.stdin.read() if sql == "-" else sql
    kind = "json" if asked.as_json else format_ or "table"
    try:
        if text is None:
            _describe(asked)
        elif kind == "table":
            answer = ask(asked.database, text)
            shown.render_table(asked.out.console(), answer.columns, answer.rows())
        else:
            answer = ask(asked.database, text)
            _STREAMED[kind](asked.out.stream, answer.columns, answer.rows())
    except QueryError as error:
        # Its lines stay lines: a caret in one of them points into the one above.
        click.echo("\n".join(printable(line) for line in f"Error: {error}".splitlines()), err=True)
        sys.exit(error.exit_code)


def _describe(asked: Reading) -> None:
    found = views(asked.database)
    if asked.as_json:
        asked.out.json({view.name: dataclasses.asdict(view) for view in found})
    else:
        path = printable(shlex.quote(str(asked.captures.path)))
        shown.render_views(asked.out.console(), found, EXAMPLES, path)
