"""The ranks of one run against each other: which of them differs, and when none is known to be right."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from aorta_collectors.analysis.bundles import bundles_of, compare_ranks
from aorta_collectors.errors import ArtifactError
from tests.analysis.bundles.made import tensor, tensors

ONE = torch.tensor([1.0, 2.0])


def made(tmp_path: Path, ranks: int, odd: int | None, begins: int = 2, kind: str = "parameter") -> Path:
    """Three steps; from step `begins` on, layer b of rank `odd` is another one. Outputs differ in any case."""
    for rank in range(ranks):
        observed = []
        for step in (1, 2, 3):
            observed.append(tensor("a", ONE * (rank + 1), step=step))
            for layer in "ab":
                off = rank == odd and layer == "b" and step >= begins
                observed.append(tensor(layer, ONE * step + 0.25 * off, kind=kind, step=step, keep=True))
        tensors(tmp_path, observed, rank=rank, ranks=ranks)
    return tmp_path


def test_parameters_are_the_same_on_all_ranks(tmp_path: Path) -> None:
    (found,) = compare_ranks(bundles_of(made(tmp_path, 3, None)))
    assert (found.all_matched, found.counts, found.what) == (True, {"matched": 6}, "parameters")


def test_the_rank_that_differs_from_the_majority(tmp_path: Path) -> None:
    (found,) = compare_ranks(bundles_of(made(tmp_path, 4, 2)))
    assert (found.outliers, found.counts) == ({2: 2}, {"matched": 4, "mismatched": 2})
    first = found.first_divergence
    assert first is not None
    assert (first.observation.layer, first.observation.step, first.groups) == ("b", 2, ((0, 1, 3), (2,)))
    assert first.pairs[2].difference is not None
    assert first.pairs[2].difference.largest_absolute == 0.25
    told = json.loads(json.dumps(found.to_json(1)))
    assert told["outliers"] == {"2": 2}
    assert told["first_divergence"]["outliers"] == [2]


def test_of_two_ranks_neither_is_the_right_one(tmp_path: Path) -> None:
    (found,) = compare_ranks(bundles_of(made(tmp_path, 2, 1)))
    assert found.first_divergence is not None
    assert (found.outliers, found.first_divergence.majority, found.all_matched) == ({}, (), False)


def test_gradients_where_parameters_were_not_observed(tmp_path: Path) -> None:
    (found,) = compare_ranks(bundles_of(made(tmp_path, 3, 0, kind="gradient")))
    assert (found.what, found.outliers) == ("gradients", {0: 2})


def test_what_is_named_is_compared_whatever_it_is(tmp_path: Path) -> None:
    (found,) = compare_ranks(bundles_of(made(tmp_path, 3, None)), names=("after_forward:*",))
    assert found.counts == {"mismatched": 3}


def test_a_rank_that_lacks_it(tmp_path: Path) -> None:
    made(tmp_path, 3, None)
    tensors(tmp_path, [tensor("a", ONE * step, kind="parameter", step=step) for step in (1, 2, 3)], rank=2, ranks=3)
    (found,) = compare_ranks(bundles_of(tmp_path))
    assert (found.counts, found.unmatched[0].missing) == ({"matched": 3, "missing": 3}, (2,))


@pytest.mark.parametrize("odd", [0, 2])
def test_ranks_that_differ_by_rounding_are_of_one_group(tmp_path: Path, odd: int) -> None:
    for rank in range(3):
        value = ONE * (1 + rank * 1e-7) + (rank == odd)
        tensors(tmp_path, [tensor("a", value, kind="parameter", keep=True)], rank=rank, ranks=3)
    (found,) = compare_ranks(bundles_of(tmp_path))
    assert found.outliers == {odd: 1}


def test_of_a_rank_the_process_that_saw_something(tmp_path: Path) -> None:
    made(tmp_path, 3, None)
    tensors(tmp_path, [], rank=1, ranks=3, pid=977, started_at="2027-01-01T00:00:00+00:00")
    (found,) = compare_ranks(bundles_of(tmp_path))
    assert (found.all_matched, found.notes) == (True, ())


def test_of_a_rank_the_process_that_began_first(tmp_path: Path) -> None:
    made(tmp_path, 3, None)
    other = [tensor("a", ONE * 9, kind="parameter")]
    tensors(tmp_path, other, rank=1, ranks=3, pid=977, started_at="2027-01-01T00:00:00+00:00")
    (found,) = compare_ranks(bundles_of(tmp_path))
    assert (found.all_matched, found.notes) == (
        True,
        ("rank 1 has another process, rank1_p977, which is not compared",),
    )


def test_one_rank_alone_and_nothing_that_should_be_the_same(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="one rank alone"):
        compare_ranks(bundles_of(made(tmp_path / "one", 1, None)))
    with pytest.raises(ArtifactError, match="points: after_step"):
        compare_ranks(bundles_of(made(tmp_path / "two", 2, None, kind="output_gradient")))
