"""One step under torch's profiler: times by our clock, results as without, and no quarrel with the program's own."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from aorta_collectors.numerics.brick import Brick
from aorta_collectors.numerics.engine.told import Told
from aorta_collectors.numerics.part import Part
from aorta_collectors.numerics.profile.escalation.profiled import ProfiledStep
from aorta_collectors.numerics.profile.escalation.programs_profiler import ProgramsProfiler
from aorta_collectors.numerics.profile.escalation.sources import Unavailable
from aorta_collectors.observe.failures import Failures
from tests.support import PYTHON, run


def _step(seed: int = 0) -> torch.Tensor:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(32, 32), nn.Dropout(), nn.Linear(32, 1))
    loss = model(torch.randn(8, 32)).sum()
    loss.backward()
    gradient = model[0].weight.grad
    assert gradient is not None
    return torch.cat([loss.detach().reshape(1), gradient.flatten(), torch.rand(1)])


def test_operations_are_told_by_our_clock() -> None:
    profiled = ProfiledStep()
    profiled.begin()
    _step()
    before = time.perf_counter_ns()
    torch.randn(100, 100) @ torch.randn(100, 100)
    after = time.perf_counter_ns()
    _step()
    profiled.end()
    products = [each for each in profiled.operations() if each.name == "aten::mm" and each.start_ns >= before - 20_000]
    assert before - 20_000 <= products[0].start_ns <= products[0].end_ns <= after + 20_000
    assert 0 < products[0].self_us <= (after - before) / 1e3 + 20
    assert products[0].device_us is None or torch.cuda.is_available()


def test_results_are_the_same_bit_for_bit() -> None:
    bare = _step(5)
    profiled = ProfiledStep()
    profiled.begin()
    observed = _step(5)
    profiled.end()
    assert torch.equal(bare, observed)
    assert any("Backward" in operation.name for operation in profiled.operations())


def test_what_observing_computes_is_not_the_programs() -> None:
    class Reading(Part):
        def left(self, brick: Brick, args: tuple[Any, ...], result: Any) -> None:
            torch.linalg.vector_norm(result)

    told = Told([part := Reading()], Failures())
    profiled = ProfiledStep()
    profiled.begin()
    product = torch.ones(50, 50) @ torch.ones(50, 50)
    told.tell((part.left,), None, (), product)
    profiled.end()
    names = [operation.name for operation in profiled.operations()]
    assert "aten::mm" in names
    assert not [name for name in names if "norm" in name or "observing" in name]


SILENTLY = """
from aorta_collectors.numerics.profile.escalation.profiled import ProfiledStep
profiled = ProfiledStep()
profiled.begin()
profiled.end()
"""


def test_it_says_nothing(tmp_path: Path) -> None:
    # In a process of its own: how much the profiler's library says is settled when it is first used.
    ran = run([PYTHON, "-c", SILENTLY], tmp_path).ok()
    assert (ran.out, ran.err) == ("", "")


def test_one_that_never_began_tells_nothing() -> None:
    profiled = ProfiledStep()
    profiled.end()
    with pytest.raises(Unavailable):
        profiled.operations()


def test_the_programs_own_profiler_goes_first() -> None:
    profiled = ProfiledStep()
    programs = ProgramsProfiler(profiled.end)
    programs.start()
    try:
        programs.ours(profiled.begin)
        assert not programs.is_there or torch.autograd._profiler_enabled()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as own:
            assert programs.is_there
            assert not profiled.runs
            _step()
        assert not programs.is_there
        assert any(event.key == "aten::addmm" for event in own.key_averages())
    finally:
        programs.stop()


def test_a_profiler_that_warms_up_is_the_programs() -> None:
    programs = ProgramsProfiler(lambda: None)
    programs.start()
    try:
        schedule = torch.profiler.schedule(wait=0, warmup=1, active=1, repeat=1)
        with torch.profiler.profile(schedule=schedule) as own:
            assert programs.is_there
            own.step()
            own.step()
            assert not programs.is_there
    finally:
        programs.stop()
