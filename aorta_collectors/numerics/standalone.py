"""The options of `python -m aorta_collectors.numerics`: those of the collect: block, a directory, and a timeline."""

from __future__ import annotations

import atexit
import os
import sys
import tempfile
from pathlib import Path

from aorta_collectors.frontend.standalone import Standalone
from aorta_collectors.numerics.config import Config
from aorta_collectors.numerics.names import ARM_FUNCTION, PROCESS
from aorta_collectors.numerics.spans import chrome
from aorta_collectors.observe.process.standalone import StandaloneLaunch
from aorta_collectors.torch_collector.standalone import CommandLine, OwnOption

# Any other option is called as in a recipe.
_OTHER_NAMES = {"trace": "--trace-level", "steps": "--trace-steps"}
_SYNOPSIS = "[--trace-level LEVEL] [--profile MODE] [--dir DIRECTORY] [--trace-output FILE] [--OPTION VALUE ...]"
_ABOUT = (
    "Runs a program, and the Python processes that it starts, observed: where time is spent, and whether the "
    "statistics of each layer are sane. Leaves summary_rank<N>.json, spans_rank<N>.jsonl, steps_rank<N>.jsonl and "
    "others."
)
_EXAMPLE = "--trace-level layer --trace-output trace.json train.py --lr 2"


def standalone() -> Standalone:
    """What numerics has of its own on the command line."""
    timeline = _Timeline()
    takes = "When the program has ended, write its spans here, for ui.perfetto.dev and chrome://tracing."
    line = CommandLine(
        Config,
        PROCESS,
        ARM_FUNCTION,
        about=_ABOUT,
        example=_EXAMPLE,
        other_names=_OTHER_NAMES,
        own={"--trace-output": OwnOption(timeline.take, "a file", takes)},
        synopsis=_SYNOPSIS,
        begin=timeline.begin,
        began=timeline.began,
    )
    return line.standalone()


class _Timeline:
    """The timeline of one call of the command."""

    def __init__(self) -> None:
        self._output: Path | None = None

    def take(self, text: str) -> None:
        self._output = Path(os.getcwd(), text)

    def begin(self, config: Config) -> None:
        if self._output is not None:
            if not config.traces:
                raise ValueError("--trace-output: has no effect with trace: none; spans are what it is written from")
            _check_may_be_replaced(self._output)

    def began(self) -> None:
        if self._output is not None:
            launch = StandaloneLaunch.of(os.environ, PROCESS.run_id_variable)
            run_id = os.environ.get(PROCESS.run_id_variable) or (launch.run_id if launch is not None else "")
            # Handlers run in the reverse order: this one when what is armed later has written its last line.
            home = Path(launch.directory if launch is not None else os.getcwd())
            atexit.register(_write_timeline, os.getpid(), home, run_id, self._output)


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
    directory = home / (os.environ.get(PROCESS.directory_variable) or PROCESS.default_directory)
    # Where that cannot be written, each process has taken a temporary one.
    instead = sorted(Path(tempfile.gettempdir()).glob(f"{PROCESS.default_directory}_*"))
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
