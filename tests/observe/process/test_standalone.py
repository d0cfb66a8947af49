"""A launch without a sweep: one for all processes below it, whichever collectors they are observed by."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aorta_collectors.observe.process.standalone import LAUNCH_VARIABLE, StandaloneLaunch

VARIABLE = "SOME_RUN_ID"


def test_the_first_process_begins_it_and_the_others_find_it() -> None:
    environ: dict[str, str] = {}
    StandaloneLaunch.begin(environ, VARIABLE)
    begun = StandaloneLaunch.of(environ, VARIABLE)
    assert begun is not None
    assert (begun.pid, begun.directory, begun.started_this_process) == (os.getpid(), os.getcwd(), False)
    StandaloneLaunch.begin(environ, VARIABLE)
    assert StandaloneLaunch.of(environ, VARIABLE) == begun


def test_each_launch_has_an_id_of_its_own() -> None:
    ids = set()
    for _ in range(50):
        environ: dict[str, str] = {}
        StandaloneLaunch.begin(environ, VARIABLE)
        ids.add(environ[LAUNCH_VARIABLE].partition(":")[0])
    assert len(ids) == 50


def test_a_sweeps_trial_is_none() -> None:
    environ = {VARIABLE: "the trial"}
    StandaloneLaunch.begin(environ, VARIABLE)
    assert environ == {VARIABLE: "the trial"}
    assert StandaloneLaunch.of({**environ, LAUNCH_VARIABLE: "a:1:/tmp"}, VARIABLE) is None


@pytest.mark.parametrize("value", ["", "a", "a:1", "a:1:", "a:x:/tmp", ":1:/tmp"])
def test_a_value_that_is_not_ours_is_no_launch(value: str) -> None:
    assert StandaloneLaunch.of({LAUNCH_VARIABLE: value}, VARIABLE) is None


@given(st.text("abc-019", min_size=1), st.integers(1, 2**22), st.text(min_size=1))
def test_any_directory_survives(run_id: str, pid: int, directory: str) -> None:
    found = StandaloneLaunch.of({LAUNCH_VARIABLE: f"{run_id}:{pid}:{directory}"}, VARIABLE)
    assert found == StandaloneLaunch(run_id, pid, directory)
    assert found.started_this_process
