"""The options of `python -m aorta_collectors.numerics`: those of the collect: block, a directory, and a timeline."""

from __future__ import annotations

import atexit
import functools
import os
import sys
import tempfile
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aorta_collectors.errors import OptionsError
from aorta_collectors.frontend.standalone import Standalone
from aorta_collectors.numerics.config import OPTIONS_SCHEMA, Config
from aorta_collectors.numerics.names import (
    ARM_FUNCTION,
    DEFAULT_DIRECTORY,
    DIRECTORY_VARIABLE,
    PREFIX,
    RUN_ID_VARIABLE,
)
from aorta_collectors.numerics.options import without_effect
from aorta_collectors.numerics.spans import chrome
from aorta_collectors.observe.process.standalone import StandaloneLaunch
from aorta_collectors.options import decode
from aorta_collectors.schema_check import load_schema, validator

# Any other option is called as in a recipe.
_OTHER_NAMES = {"trace": "--trace-level", "steps": "--trace-steps"}
_SYNOPSIS = "[--trace-level LEVEL] [--profile MODE] [--dir DIRECTORY] [--trace-output FILE] [--OPTION VALUE ...]"
_HELP = f"""Runs a program, and the Python processes that it starts, observed: where time is spent, and whether the
statistics of each layer are sane. Leaves summary_rank<N>.json, spans_rank<N>.jsonl, steps_rank<N>.jsonl and others in
--dir, or {DIRECTORY_VARIABLE} (default {DEFAULT_DIRECTORY}). Options set {PREFIX}* variables, which may be set instead.

"""
_OWN = {
    "--dir": "Where to write.",
    "--trace-output": "When the program has ended, write its spans here, for ui.perfetto.dev and chrome://tracing.",
}
_EXAMPLE = "\nexample: COMMAND --trace-level layer --trace-output trace.json train.py --lr 2\n"


def standalone() -> Standalone:
    """What numerics has of its own on the command line."""
    return _CommandLine().standalone()


class _CommandLine:
    """One call."""

    def __init__(self) -> None:
        self._schema = load_schema(OPTIONS_SCHEMA)
        # on_missing is for a sweep alone: nobody verifies here.
        names = [name for name in self._schema["properties"] if name != "on_missing"]
        self._options = {name: _OTHER_NAMES.get(name, "--" + name.replace("_", "-")) for name in names}
        self._given: list[str] = []
        self._output: Path | None = None

    def standalone(self) -> Standalone:
        options: dict[str, Callable[[str], None]] = {
            option: functools.partial(self._take, name) for name, option in self._options.items()
        }
        return Standalone(
            arm_function=ARM_FUNCTION,
            options={**options, "--dir": _take_directory, "--trace-output": self._take_output},
            needs={"--dir": "a directory", "--trace-output": "a file"},
            synopsis=_SYNOPSIS,
            help=_HELP + self._told() + _EXAMPLE,
            begin=self._begin,
        )

    def _take(self, name: str, text: str) -> None:
        try:
            decode({name: text}, self._schema, validator(OPTIONS_SCHEMA))
        except OptionsError as error:
            raise ValueError(f"{self._options[name]} {error.message}") from None
        os.environ[PREFIX + name.upper()] = text
        self._given.append(name)

    def _take_output(self, text: str) -> None:
        self._output = Path(os.getcwd(), text)

    def _begin(self) -> None:
        config = Config.from_environment(os.environ)
        for name, fault in without_effect(config, self._given):
            if name in self._given:
                raise ValueError(f"{self._options[name]}: {fault}")
        if self._output is not None:
            if not config.traces:
                raise ValueError("--trace-output: has no effect with trace: none; spans are what it is written from")
            _check_may_be_replaced(self._output)
        StandaloneLaunch.begin(os.environ, RUN_ID_VARIABLE)
        if self._output is not None:
            launch = StandaloneLaunch.of(os.environ, RUN_ID_VARIABLE)
            run_id = os.environ.get(RUN_ID_VARIABLE) or (launch.run_id if launch is not None else "")
            # Handlers run in the reverse order: this one when what is armed later has written its last line.
            home = Path(launch.directory if launch is not None else os.getcwd())
            atexit.register(_write_timeline, os.getpid(), home, run_id, self._output)

    def _told(self) -> str:
        """The options, a paragraph each."""
        properties: dict[str, Any] = self._schema["properties"]
        texts = {option: properties[name]["description"] for name, option in self._options.items()}
        lines = []
        for option, text in {**texts, **_OWN}.items():
            lines.append(f"  {option}")
            lines += textwrap.wrap(text, 110, initial_indent="      ", subsequent_indent="      ")
        return "\n".join(lines) + "\n"


def _take_directory(text: str) -> None:
    os.environ[DIRECTORY_VARIABLE] = text


def _check_may_be_replaced(target: Path) -> None:
    """Raise ValueError for what cannot have been written by an earlier launch, such as the program itself."""
    try:
        is_other = target.exists() and not (target.is_file() and chrome.is_timeline(target))
    except OSError as error:
        raise ValueError(f"--trace-output: {target}: {error.strerror}") from None
    if is_other:
        raise ValueError(f"--trace-output: {target} is there and is no timeline; it is not replaced")


def _write_timeline(pid: int, home: Path, run_id: str, target: Path) -> None:
    if os.getpid() != pid:
        return  # a fork that ends as a program does
    directory = home / (os.environ.get(DIRECTORY_VARIABLE) or DEFAULT_DIRECTORY)
    # Where that cannot be written, each process has taken a temporary one.
    instead = sorted(Path(tempfile.gettempdir()).glob(f"{DEFAULT_DIRECTORY}_*"))
    found = {each: chrome.written_in(each, run_id) for each in (directory, *instead)}
    processes = [process for those in found.values() for process in those]
    if not processes:
        sys.stderr.write(f"aorta-collectors: {target} was not written: this launch left no spans in {directory}\n")
        return
    try:
        chrome.write(processes, target)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"aorta-collectors: {target} could not be written: {error}\n")
        return
    where = ", ".join(str(each) for each, those in found.items() if those)
    sys.stderr.write(f"aorta-collectors: {target} has the spans of {len(processes)} process(es) in {where}\n")
