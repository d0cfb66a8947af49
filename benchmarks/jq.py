"""What somebody without this package would type: the same questions in jq, as fast as one line of it gets.

first-bad of one file: jq stops at the first bad record, as a file is in order. Of several ranks all have to be read,
since the one that goes bad first may be the last: each file is filtered, and the least place among the hits is taken.
jq -s would hold all records in memory instead.

compare: jq has no join that does not hold both sides in memory. The nearest that works prints the key and the
statistics of each record, sorts both sides, and leaves what is in one of them alone; `sort -n` brings the earliest step
to the top. Both sides run at once. There is no tolerance, no verdict by layer, and no difference between a record that
is missing and one that is not the same.
"""

from __future__ import annotations

import shlex
from pathlib import Path

FIRST_OF_A_FILE = "first(inputs | select(.bad))"
FIRST_OF_ALL = "min_by([.step, .seq, .rank])"
COMPARED = (
    "[.step, .module_path, .role, .tensor_path, .invocation, "
    ".nan_count, .inf_count, .huge_count, .finite_abs_max, .finite_max, .finite_min] | @tsv"
)


def first_bad(directory: Path) -> str:
    """The line for one rank."""
    return f"jq -cn {shlex.quote(FIRST_OF_A_FILE)} {_quoted(directory)}/layers_rank0.jsonl"


def first_bad_of_ranks(directory: Path) -> str:
    """The line for all ranks."""
    return f"jq -c 'select(.bad)' {_quoted(directory)}/layers_rank*.jsonl | jq -sc {shlex.quote(FIRST_OF_ALL)}"


def compare(left: Path, right: Path) -> str:
    sides = [f"<(jq -r {shlex.quote(COMPARED)} {_quoted(side)}/layers_rank0.jsonl | sort)" for side in (left, right)]
    return f"LC_ALL=C comm -3 {sides[0]} {sides[1]} | sort -n | sed -n 1,20p"


def _quoted(directory: Path) -> str:
    return shlex.quote(str(directory))
