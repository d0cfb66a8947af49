"""One name over invocations: where a difference begins, and whether it grows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from aorta_collectors.analysis.bundles import bundles_of, series
from aorta_collectors.errors import ArtifactError
from tests.analysis.bundles.made import tensor, tensors

ONE = torch.tensor([1.0, 2.0])


def made(tmp_path: Path, drift: float, begins: int, keep: bool = True) -> None:
    for side, by in (("a", 0.0), ("b", drift)):
        observed = [
            tensor("x", ONE + by * max(0, at - begins + 1), step=at + 1, invocation=at, keep=keep) for at in range(12)
        ]
        tensors(tmp_path / side, observed)


def test_a_drift_that_grows(tmp_path: Path) -> None:
    made(tmp_path, 0.5, begins=3)
    (found,) = series(bundles_of(tmp_path / "a"), bundles_of(tmp_path / "b"), "after_forward:x.output")
    assert found.begins is not None
    assert found.last_matched is not None
    assert (found.begins.either.invocation, found.last_matched.either.invocation) == (3, 2)
    assert found.growth is not None
    assert found.growth.grows
    assert found.growth.slope == pytest.approx(0.5)
    told = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert [point["largest_absolute"] for point in told["points"][:5]] == [0.0, 0.0, 0.0, 0.5, 1.0]
    assert (told["points"][3]["baseline_abs_max"], told["points"][3]["candidate_abs_max"]) == (2.0, 2.5)


def test_a_difference_that_stays(tmp_path: Path) -> None:
    for side, by in (("a", 0.0), ("b", 0.5)):
        tensors(tmp_path / side, [tensor("x", ONE + by, step=at + 1, keep=True) for at in range(8)])
    (found,) = series(bundles_of(tmp_path / "a"), bundles_of(tmp_path / "b"), "after_forward:*")
    assert found.growth is not None
    assert (found.growth.grows, found.last_matched) == (False, None)


def test_without_values_it_still_tells_where_it_begins(tmp_path: Path) -> None:
    made(tmp_path, 0.5, begins=3, keep=False)
    (found,) = series(bundles_of(tmp_path / "a"), bundles_of(tmp_path / "b"), "after_forward:x.output")
    assert found.begins is not None
    assert (found.begins.either.invocation, found.growth, found.all_matched) == (3, None, False)


def test_a_name_that_nobody_has(tmp_path: Path) -> None:
    made(tmp_path, 0.0, begins=0)
    (found,) = series(bundles_of(tmp_path / "a"), bundles_of(tmp_path / "b"), "after_forward:x.output")
    assert found.all_matched
    with pytest.raises(ArtifactError, match="neither side has observed 'y'"):
        series(bundles_of(tmp_path / "a"), bundles_of(tmp_path / "b"), "y")
