"""What a verb of this command prints, without another process: evidence in a report of an investigation."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator, Sequence

import click

from aorta_collectors.cli import main
from aorta_collectors.investigate.evidence import PROGRAM, Printed

# By these somebody asks for colours, also where nobody looks at a terminal.
_COLOURS = ("FORCE_COLOR", "TTY_COMPATIBLE", "CLICOLOR_FORCE")


def printed(words: Sequence[str]) -> Printed:
    """What `aorta-collectors` prints for some words into a pipe, on stdout and stderr together."""
    content = io.BytesIO()
    stream = io.TextIOWrapper(content, "utf-8", "backslashreplace", newline="", write_through=True)
    with contextlib.redirect_stdout(stream), contextlib.redirect_stderr(stream), _without_colours():
        code = _run(words)
        stream.flush()
    return Printed(content.getvalue().decode(), code)


def _run(words: Sequence[str]) -> int:
    try:
        main(list(words), prog_name=PROGRAM, standalone_mode=False)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    return 0


@contextlib.contextmanager
def _without_colours() -> Iterator[None]:
    before = {name: os.environ.pop(name) for name in _COLOURS if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(before)
