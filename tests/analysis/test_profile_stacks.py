"""Bricks as stacks: what encloses what, and that no time is lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aorta_collectors.analysis.profile_stacks import Frame, stacks_of
from tests.analysis.profiled import profile_with
from tests.numerics.synthetic import brick


def named(roots: tuple[Frame, ...]) -> list[str]:
    return ["/".join(frame.name for frame in stack) for root in roots for stack in root.stacks()]


def test_frames_are_below_what_encloses_them(tmp_path: Path) -> None:
    layers = ["h.10.mlp", "h.2", "(root)", "h.10", "head.out", "Other.(root)", "Other.fc"]
    bricks = [brick(layer, module_type="GPT" if layer == "(root)" else "X") for layer in layers]
    found = stacks_of(profile_with(tmp_path, [*bricks, brick("h.2", direction="backward")]).bricks)
    assert named(found) == [
        "forward",
        "forward/GPT",
        "forward/GPT/h.2",
        "forward/GPT/h.10",
        "forward/GPT/h.10/mlp",
        "forward/GPT/head.out",
        "forward/Other",
        "forward/Other/fc",
        "backward",
        "backward/h.2",
    ]


def test_without_time_there_is_no_root(tmp_path: Path) -> None:
    assert stacks_of(profile_with(tmp_path, [brick("a", self_us=0)]).bricks) == ()
    assert stacks_of(()) == ()


@given(
    st.dictionaries(
        st.lists(st.sampled_from(["a", "b", "0", "11"]), min_size=1, max_size=5).map(".".join),
        st.integers(1, 9),
        max_size=12,
    )
)
@settings(max_examples=20, deadline=None)
def test_no_time_is_lost(tmp_path_factory: pytest.TempPathFactory, times: dict[str, int]) -> None:
    path = tmp_path_factory.mktemp("stacks")
    found = stacks_of(profile_with(path, [brick(layer, self_us=us) for layer, us in times.items()]).bricks)
    assert sum(root.total_us for root in found) == pytest.approx(sum(times.values()))
    assert sum(stack[-1].own_us for root in found for stack in root.stacks()) == pytest.approx(sum(times.values()))
    for root in found:
        for stack in root.stacks():
            assert sum(frame.total_us for frame in stack[-1].inner) <= stack[-1].total_us + 1e-9


def test_nesting_has_an_end(tmp_path: Path) -> None:
    layers = [".".join(["a"] * depth) for depth in range(1, 1500)]
    (root,) = stacks_of(profile_with(tmp_path, [brick(layer) for layer in layers]).bricks)
    assert root.depth() < 300
    assert root.total_us == pytest.approx(400.0 * len(layers))
