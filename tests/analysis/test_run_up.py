"""What led to a bad value: its own tensor's magnitudes in the steps before, and the limit that they ran into."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.analysis.test_first_bad import of_one
from tests.captured.synthetic import record


@pytest.mark.parametrize(
    ("bad", "limit"),
    [
        ({"infs": 1, "dtype": "torch.float16"}, (65504.0, "float16")),
        ({"huge": 1}, (1e5, "threshold")),
        ({"oob_count": 1}, (None, "")),
        ({"nans": 1, "dtype": "torch.int64"}, (None, "")),
    ],
)
def test_it_is_the_tensors_own_and_ends_at_its_limit(
    tmp_path: Path, bad: dict[str, Any], limit: tuple[float | None, str]
) -> None:
    dtype = bad.get("dtype", "torch.float32")
    records = []
    for step in (1, 2, 3):
        records.append(record(step, seq=1, high=10.0**step, dtype=dtype))
        others: list[dict[str, Any]] = [{"layer": "b"}, {"role": "wgrad"}, {"direction": "bwd"}, {"invocation": 2}]
        others += [{"tensor_path": "[1]"}, {"param_name": "weight"}]
        records += [record(step, seq=2 + n, high=1.0, **other) for n, other in enumerate(others)]
    records += [record(4, seq=1, **bad), record(5, seq=1, **bad)]
    process = of_one(tmp_path / "out", records, config={"huge_threshold": 1e5})
    assert process.run_up is not None
    assert process.run_up.steps == (1, 2, 3)
    assert process.run_up.magnitudes == (10.0, 100.0, 1000.0)
    assert process.run_up.per_step == pytest.approx(10)
    assert (process.run_up.limit, process.run_up.limit_of) == limit


def test_it_has_the_last_ten_steps_that_have_a_magnitude(tmp_path: Path) -> None:
    records = [record(step, high=None if step == 18 else float(step)) for step in range(20)]
    process = of_one(tmp_path / "out", [*records, record(20, nans=1)])
    assert process.run_up is not None
    assert process.run_up.steps == (9, 10, 11, 12, 13, 14, 15, 16, 17, 19)


@pytest.mark.parametrize(("magnitudes", "steps"), [((0.0, 1.0), (1, 2)), ((1.0, 0.0), (1, 2)), ((5.0,), (1,))])
def test_of_what_does_not_grow_by_a_factor_none_is_told(
    tmp_path: Path, magnitudes: tuple[float, ...], steps: tuple[int, ...]
) -> None:
    records = [record(step, high=high) for step, high in zip(steps, magnitudes, strict=True)]
    process = of_one(tmp_path / "out", [*records, record(9, nans=1)])
    assert process.run_up is not None
    assert (process.run_up.magnitudes, process.run_up.per_step) == (magnitudes, None)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.floats(1e-30, 1e30), min_size=2, max_size=6), st.integers(1, 4))
def test_the_factor_leads_from_the_first_to_the_last(
    tmp_path_factory: pytest.TempPathFactory, magnitudes: list[float], stride: int
) -> None:
    records = [record(n * stride, high=high) for n, high in enumerate(magnitudes)]
    process = of_one(tmp_path_factory.mktemp("factor") / "out", [*records, record(99, nans=1)])
    assert process.run_up is not None
    assert process.run_up.per_step is not None
    steps = stride * (len(magnitudes) - 1)
    assert math.log(process.run_up.per_step) * steps == pytest.approx(
        math.log(magnitudes[-1]) - math.log(magnitudes[0]), abs=1e-9
    )
