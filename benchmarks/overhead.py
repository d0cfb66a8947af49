"""What observing costs, each row beside its bar.

    make bench                                          # ten minutes or so on two cores
    python benchmarks/overhead.py --quick               # two minutes
    python benchmarks/overhead.py --only default,stock  # some rows
    python benchmarks/overhead.py --json rows.json

Times are wall clock. Variants alternate within one process, in short blocks in a random order, on the same model and
the same inputs, so that what else the machine does meets all of them; each block's first steps are left out. A value
is a ratio of medians over blocks, and its interval, in which it lies with 95 percent, comes from resampling rounds. A
bar is met or MISSED by the value alone. docs/explanation/overhead.md says what bounds the numbers.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Set
from pathlib import Path

import orjson
import torch

from benchmarks import capturing, gpu, growth, large, small, startup, tracing
from benchmarks.row import Row
from benchmarks.sizes import QUICK, TINY, Sizes

_Measure = Callable[[Set[str], Sizes, Path], list[Row]]

#: What is measured together, in the order of the table.
_MEASURES: tuple[tuple[tuple[str, ...], _Measure], ...] = (
    (large.KEYS, large.transformer_rows),
    (tracing.KEYS, tracing.tracing_rows),
    (capturing.KEYS, capturing.capturing_rows),
    (("limit",), lambda _, sizes, directory: large.limit_rows(sizes, directory)),
    (("record",), lambda _, sizes, directory: small.record_rows(sizes, directory)),
    (("write",), lambda _, sizes, directory: small.written_rows(sizes, directory)),
    (("steps",), lambda _, sizes, directory: growth.step_rows(sizes, directory)),
    (("modules",), lambda _, sizes, directory: growth.module_rows(sizes, directory)),
    (("start",), lambda _, sizes, directory: startup.start_rows(sizes, directory)),
    (gpu.KEYS, lambda _, sizes, directory: gpu.gpu_rows(sizes, directory)),
)
KEYS = tuple(key for keys, _ in _MEASURES for key in keys)


def measure(wanted: Set[str], sizes: Sizes, threads: int = 2) -> Iterable[Row]:
    """The wanted rows, one group after the other, each as soon as it is known."""
    torch.set_num_threads(threads)
    with tempfile.TemporaryDirectory() as directory:
        for keys, function in _MEASURES:
            if not wanted.isdisjoint(keys):
                yield from function(wanted & set(keys), sizes, Path(directory))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(KEYS), metavar="ROW[,ROW]", help=f"of {', '.join(KEYS)}")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="fewer rounds, wider intervals")
    size.add_argument("--tiny", action="store_true", help="only to see that it runs: the numbers mean nothing")
    parser.add_argument("--threads", type=int, default=2, help="of torch")
    parser.add_argument(
        "--cpu", action="store_true", help="processor time of one thread, for a machine that is busy with other things"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows there too")
    arguments = parser.parse_args()
    wanted = set(arguments.only.split(","))
    if unknown := wanted - set(KEYS):
        parser.error(f"no such row: {', '.join(sorted(unknown))}; there are {', '.join(KEYS)}")
    sizes = QUICK if arguments.quick else TINY if arguments.tiny else Sizes()
    if arguments.cpu:
        sizes, arguments.threads = dataclasses.replace(sizes, clock=time.process_time), 1
    began, rows = time.monotonic(), []
    # Both loggers say on stderr, in each block, what they watch.
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
        for row in measure(wanted, sizes, arguments.threads):
            rows.append(row)
            print(row.text(), flush=True)
    missed = [row.key for row in rows if row.met is False]
    bars = sum(row.bar is not None for row in rows)
    told = f"; MISSED: {', '.join(dict.fromkeys(missed))}" if missed else ""
    if "gpu" in wanted and not torch.cuda.is_available():
        print("gpu: no device here")
    print(f"\n{bars - len(missed)} of {bars} bars met in {time.monotonic() - began:.0f} s{told}")
    if arguments.json is not None:
        arguments.json.write_bytes(orjson.dumps([row.plain() for row in rows], option=orjson.OPT_INDENT_2) + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
