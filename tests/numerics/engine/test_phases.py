"""What the time of a step went into: disjoint, whatever lies inside of what."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from aorta_collectors.numerics.engine.anatomy import EMBED, LM_HEAD, NORM, TRANSFORMER_BLOCK
from aorta_collectors.numerics.engine.opened import Opened
from aorta_collectors.numerics.engine.phases import StepPhases
from aorta_collectors.numerics.engine.timeline import Source
from aorta_collectors.numerics.spans.span import PHASES

PARTS = (EMBED, TRANSFORMER_BLOCK, NORM, LM_HEAD, "")


def test_named_modules_are_taken_out_of_the_passes_that_they_lie_in() -> None:
    phases = StepPhases()
    for name, own in ((EMBED, 10), (TRANSFORMER_BLOCK, 50), (NORM, 3), (LM_HEAD, 20)):
        phases.module_forward(name, own)
        phases.module_backward(name, 2 * own)
    phases.forward(0, 100, 100)
    phases.add("loss", 7)
    phases.backward(110, 310, 200)
    phases.add("opt", 30)
    assert phases.take([]) == {
        "embed": 10,
        "forward": 67,
        "norm_lm": 23,
        "loss": 7,
        "lm_bwd": 40,
        "norm_bwd": 6,
        "blk_bwd": 100,
        "embed_bwd": 20,
        "backward": 34,
        "opt": 30,
    }


def test_a_transfer_counts_once_wherever_it_is_made() -> None:
    phases = StepPhases()
    phases.forward(200, 300, 100)
    sources = [
        Source("data", 0, 100, 100),
        Source("h2d", 50, 60, 10),
        Source("h2d", 120, 150, 30),
        Source("h2d", 210, 215, 5),
    ]
    assert phases.take(sources) == {"data": 90, "h2d": 45, "forward": 95}


def test_a_step_starts_from_nothing() -> None:
    phases = StepPhases()
    phases.forward(0, 10, 10)
    phases.take([])
    assert phases.take([]) == {}


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(PARTS), st.integers(0, 1000)), max_size=6),
    st.lists(st.tuples(st.sampled_from(PARTS), st.integers(0, 1000)), max_size=6),
    st.lists(st.tuples(st.sampled_from(["h2d", "grad_h2d"]), st.integers(0, 9_000), st.integers(1, 50)), max_size=5),
)
def test_they_come_to_the_time_that_was_spent(
    forward: list[tuple[str, int]], backward: list[tuple[str, int]], transfers: list[tuple[str, int, int]]
) -> None:
    phases = StepPhases()
    for name, own in forward:
        phases.module_forward(name, own)
    for name, own in backward:
        phases.module_backward(name, own)
    phases.forward(0, 10_000, 10_000)
    phases.backward(10_000, 20_000, 10_000)
    found = phases.take([Source(phase, at, at + took, took) for phase, at, took in transfers])
    assert sum(found.values()) == 20_000
    assert list(found) == [phase for phase in PHASES if phase in found]
    assert min(found.values()) >= 0


def test_what_is_open_knows_its_own_time() -> None:
    opened = Opened("EMBED", "phase", "", "forward", True)
    opened.start_ns, opened.spent_s = 1000, 5e-6
    assert (opened.overhead_ns(2000, 5.25e-6), opened.own_ns(2000, 5.25e-6)) == (250, 750)
