"""What the tools write, read; and time in the kernel, worked out from what is counted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aorta_collectors.numerics.profile.escalation import by_perf, by_strace
from aorta_collectors.numerics.profile.escalation.by_proc import in_kernel_by

_STRACE = """\
strace: Process 25787 attached
strace: Process 25787 detached
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 73.92    0.114084         232       491           munmap
 13.94    0.021515          43       492           mmap
  0.39    0.001921        1920         1         1 restart_syscall
  0.01    0.000500          38         3         2 futex
------ ----------- ----------- --------- --------- ----------------
100.00    0.138020         104      1475         3 total
"""
_PERF = """\
 Warning:
Processed 207178 events and lost 1 chunks!

 Summary of events:

 python (with) name (30277), 188713 events, 99.9%

   syscall            calls  errors  total       min       avg       max       stddev
                                     (msec)    (msec)    (msec)    (msec)        (%)
   --------------- --------  ------ -------- --------- --------- ---------     ------
   ioctl              94356      0    78.130     0.001     0.001     0.030      0.20%
   read                   2      1     0.010     0.001     0.001     0.030      0.20%


 worker (30278), 2 events, 0.1%

   syscall            calls    total       min       avg       max      stddev
                               (msec)    (msec)    (msec)    (msec)        (%)
   --------------- -------- --------- --------- --------- ---------     ------
   futex                  1    50.000    50.000    50.000    50.000      0.00%
"""


def test_strace_is_read() -> None:
    calls = by_strace.calls_by_name(_STRACE)
    assert calls == {
        "munmap": (491, pytest.approx(114084.0)),
        "mmap": (492, pytest.approx(21515.0)),
        "restart_syscall": (1, pytest.approx(1921.0)),
        "futex": (3, pytest.approx(500.0)),
    }
    assert by_strace.by_category(calls) == {
        "mmap": pytest.approx(135599.0),
        "other": pytest.approx(1921.0),
        "futex": pytest.approx(500.0),
    }


def test_perf_is_read_by_thread_with_and_without_its_column_of_errors() -> None:
    assert by_perf.by_thread(_PERF) == {
        30277: {"ioctl": pytest.approx(78130.0), "read": pytest.approx(10.0)},
        30278: {"futex": pytest.approx(50000.0)},
    }


_counted = st.fixed_dictionaries({name: st.integers(0, 10**9) for name in ("syscr", "syscw", "rchar", "wchar")})


@given(st.floats(0, 1e7), _counted, st.integers(0, 10**6), st.floats(0, 1))
def test_time_in_the_kernel_is_all_accounted_for(
    micros: float, io: dict[str, int], faults: int, changing: float
) -> None:
    found = in_kernel_by(micros, io, faults, changing)
    assert sum(found.values()) == pytest.approx(micros, abs=1e-3)
    assert all(part >= 0 for part in found.values())


@pytest.mark.parametrize(
    ("io", "faults", "changing", "category"),
    [
        ({"syscr": 100, "rchar": 100 << 20}, 0, 0.0, "read"),
        ({"syscw": 100, "wchar": 100 << 20}, 3, 0.0, "write"),
        ({"syscr": 3, "rchar": 1000}, 20000, 0.2, "mmap"),
        ({}, 0, 1.0, "mmap"),
        ({"syscr": 3, "rchar": 1000}, 2, 0.0, "other"),
    ],
)
def test_what_was_counted_most_is_what_took_the_time(
    io: dict[str, int], faults: int, changing: float, category: str
) -> None:
    found = in_kernel_by(10_000.0, io, faults, changing)
    assert max(found, key=lambda name: found[name]) == category
