"""Processor time outside of system calls, from what is known of a thread."""

from __future__ import annotations

import os
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aorta_collectors.numerics.profile.escalation.threads import Usage, computing_us, thread_ids, usage

_parts = st.integers(0, 10_000)


@given(user=st.integers(1, 10_000), in_kernel=_parts, waiting=_parts, share=st.floats(0, 2))
def test_what_a_thread_computes_is_found_again(user: int, in_kernel: int, waiting: int, share: float) -> None:
    """A thread runs `user` us outside of calls and `in_kernel` us in them, waits in them, and is kept from running."""
    cpu = user + in_kernel
    delay = cpu * share
    used = Usage(cpu_ns=cpu * 1000, delay_ns=round(delay * 1000))
    in_calls = waiting + in_kernel * (1 + share)
    found = computing_us(cpu + delay + waiting, used, in_calls)
    assert found == pytest.approx(user, abs=0.01)


def test_a_thread_that_never_ran_computes_nothing() -> None:
    assert computing_us(1000.0, Usage(), 0.0) == 0.0


def test_usage_is_that_of_the_thread() -> None:
    tid = threading.get_native_id()
    assert tid in thread_ids(os.getpid())
    before = usage(os.getpid(), tid)
    began = time.thread_time_ns()
    while time.thread_time_ns() - began < 30_000_000:
        pass
    spent_ns = time.thread_time_ns() - began
    after = usage(os.getpid(), tid)
    assert before is not None
    assert after is not None
    assert after.since(before).cpu_ns == pytest.approx(spent_ns, rel=0.5)  # of a kernel with ticks alone, within one


def test_a_process_that_is_gone_has_no_threads() -> None:
    assert thread_ids(2**22 + 1) == []
    assert usage(2**22 + 1, 1) is None
