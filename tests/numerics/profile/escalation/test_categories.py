"""Numbers and names of system calls are those of the kernel's own headers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from aorta_collectors.numerics.profile.escalation import categories

_HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}
_DEFINED = re.compile(r"#define __NR(?:3264)?_(\w+) (\d+)$", re.MULTILINE)


@pytest.mark.parametrize("machine", _HEADERS)
def test_numbers_are_those_of_the_headers(machine: str) -> None:
    header = _HEADERS[machine]
    if not header.exists():
        pytest.skip(f"{header} is not installed")
    defined = {int(number): name for name, number in _DEFINED.findall(header.read_text())}
    known = categories.by_number(machine)
    shared = known.keys() & defined.keys()
    assert len(shared) > 40
    assert {number: categories.of_name(defined[number]) for number in shared} == {n: known[n] for n in shared}
    # What has a category by name has it by number, but for what only machines of 32 bits have.
    named = {name for name in defined.values() if categories.of_name(name) != "other" and not name.endswith("_time64")}
    assert named == {defined[number] for number in shared}


def test_an_unknown_machine_has_no_numbers() -> None:
    assert categories.by_number("z80") == {}


@pytest.mark.parametrize(
    ("channel", "category"),
    [("futex_do_wait", "futex"), ("anon_pipe_read", "read"), ("hrtimer_nanosleep", "other"), ("pipe_write", "write")],
)
def test_what_a_thread_sleeps_in_has_a_category(channel: str, category: str) -> None:
    assert categories.of_channel(channel) == category
