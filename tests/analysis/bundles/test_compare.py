"""Tensors of two runs: what each pair comes to, and where the runs part first."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from aorta_collectors.analysis.bundles import TensorComparison, bundles_of, compare
from aorta_collectors.analysis.bundles.criterion import BITWISE, ULP, Criterion
from tests.analysis.bundles.made import tensor, tensors

ONE = torch.tensor([1.0, 2.0])
NAN = torch.tensor([1.0, math.nan])
Made = Sequence[dict[str, Any]]


def compared(
    tmp_path: Path,
    a: Made,
    b: Made,
    criterion: Criterion | None = None,
    names: Sequence[str] = (),
) -> TensorComparison:
    tensors(tmp_path / "a", a)
    tensors(tmp_path / "b", b)
    return compare(bundles_of(tmp_path / "a"), bundles_of(tmp_path / "b"), criterion or Criterion(), names)


def one(tmp_path: Path, a: Tensor, b: Tensor, criterion: Criterion, keep: bool) -> tuple[str, str]:
    """The state of one pair, and why."""
    found = compared(tmp_path, [tensor("x", a, keep=keep)], [tensor("x", b, keep=keep)], criterion)
    (pair,) = found.pairs
    return (pair.unmatched[0].state, pair.unmatched[0].judgement.reason) if pair.unmatched else ("matched", "")


TOLERANT, BITS, ULPS = Criterion(), Criterion(BITWISE), Criterion(ULP, 2)
NAN_EQUAL = Criterion(equal_nan=True)
NEXT = torch.nextafter(ONE, torch.full((2,), 9.0))


class TestStates:
    @pytest.mark.parametrize(
        ("a", "b", "criterion", "keep", "expected"),
        [
            (ONE, ONE, TOLERANT, False, "matched"),
            (ONE, NEXT, TOLERANT, True, "matched"),
            (ONE, NEXT, ULPS, True, "matched"),
            (ONE, NEXT, BITS, True, "mismatched: bits differ"),
            (ONE, NEXT, BITS, False, "mismatched: bits differ"),
            (ONE, NEXT, TOLERANT, False, "inconclusive: digests differ, and neither side kept values"),
            (ONE, NEXT, ULPS, False, "inconclusive: digests differ, and neither side kept values"),
            (ONE, ONE + 1, TOLERANT, True, "mismatched: values differ"),
            (ONE, ONE + 1, TOLERANT, False, "mismatched: extremes differ by more than elements may"),
            (NAN, NAN, TOLERANT, False, "mismatched: the same, with NaN on both sides, which equals nothing"),
            (NAN, NAN, TOLERANT, True, "mismatched: the same, with NaN on both sides, which equals nothing"),
            (NAN, NAN, NAN_EQUAL, True, "matched"),
            (NAN, NAN, BITS, False, "matched"),
            (ONE, NAN, TOLERANT, False, "mismatched: NaN in the candidate alone"),
            (ONE / 0, ONE, TOLERANT, True, "mismatched: Inf in the baseline alone"),
            (ONE, torch.cat([ONE, ONE]), TOLERANT, True, "mismatched: shapes differ"),
            (ONE, torch.cat([ONE, ONE]), BITS, False, "mismatched: shapes differ"),
            (ONE, torch.cat([ONE, NAN]), TOLERANT, True, "mismatched: NaN in the candidate alone"),
            (ONE, ONE.to(torch.bfloat16), TOLERANT, True, "matched"),
            (ONE, ONE.to(torch.bfloat16), ULPS, True, "matched"),
            (
                ONE,
                ONE.to(torch.bfloat16) * 1.5,
                TOLERANT,
                False,
                "mismatched: extremes differ by more than elements may",
            ),
            (
                ONE,
                ONE.to(torch.bfloat16),
                TOLERANT,
                False,
                "inconclusive: digests differ, and neither side kept values",
            ),
            (ONE, ONE.to(torch.bfloat16), BITS, True, "mismatched: dtypes differ: float32, bfloat16"),
            (ONE, ONE.to(torch.bfloat16), BITS, False, "mismatched: dtypes differ: float32, bfloat16"),
            (ONE.half(), ONE.to(torch.bfloat16), BITS, True, "mismatched: dtypes differ: float16, bfloat16"),
            (ONE.int(), ONE.long(), BITS, True, "mismatched: dtypes differ: int32, int64"),
            *(
                (ONE, ONE.to(torch.int32), criterion, True, "mismatched: dtypes are of different kinds: float32, int32")
                for criterion in (TOLERANT, ULPS, BITS)
            ),
            (ONE.int(), ONE.int() + 1, TOLERANT, False, "mismatched: values differ"),
            (ONE.int(), ONE.long(), TOLERANT, True, "matched"),
            (ONE.int(), ONE.long(), TOLERANT, False, "inconclusive: digests differ, and neither side kept values"),
            (ONE.int(), ONE.long() + 1, TOLERANT, False, "mismatched: extremes differ by more than elements may"),
            (torch.zeros(0), torch.zeros(0), TOLERANT, False, "matched"),
        ],
    )
    def test_a_pair(
        self, tmp_path: Path, a: Tensor, b: Tensor, criterion: Criterion, keep: bool, expected: str
    ) -> None:
        state, reason = one(tmp_path, a, b, criterion, keep)
        assert (f"{state}: {reason}" if reason else state) == expected

    def test_values_on_one_side_alone(self, tmp_path: Path) -> None:
        found = compared(tmp_path, [tensor("x", ONE, keep=True)], [tensor("x", NEXT)])
        assert found.pairs[0].unmatched[0].judgement.reason == "digests differ, and the candidate kept no values"

    def test_values_that_were_left_out_say_why(self, tmp_path: Path) -> None:
        tensors(tmp_path / "a", [tensor("x", ONE)])
        tensors(tmp_path / "b", [tensor("x", NEXT)])
        for side in "ab":
            file = tmp_path / side / "tensors_rank0.jsonl"
            file.write_text(file.read_text().replace('"left_out": null', '"left_out": "max_bytes"'))
        (pair,) = compare(bundles_of(tmp_path / "a"), bundles_of(tmp_path / "b")).pairs
        assert pair.reasons == [
            ("inconclusive", "digests differ, and neither side kept values (max_bytes)", None, 1),
        ]

    @pytest.mark.parametrize("criterion", [TOLERANT, ULPS, BITS], ids=["tolerance", "ulp", "bits"])
    def test_what_nobody_looked_at_is_not_known_to_be_free_of_nan(self, tmp_path: Path, criterion: Criterion) -> None:
        tensors(tmp_path / "a", [tensor("x", ONE)])
        tensors(tmp_path / "b", [tensor("x", NAN)])
        file = tmp_path / "a" / "tensors_rank0.jsonl"
        (line,) = map(json.loads, file.read_text().splitlines())
        line |= dict.fromkeys(("digest", "min", "max", "mean", "std")) | {"unread": "in the capture of a CUDA graph"}
        file.write_text(json.dumps(line) + "\n")
        (pair,) = compare(bundles_of(tmp_path / "a"), bundles_of(tmp_path / "b"), criterion).pairs
        why = "there is no digest (in the capture of a CUDA graph), and neither side kept values"
        assert pair.reasons == [("inconclusive", why, None, 1)]

    @pytest.mark.parametrize(
        ("value", "criterion", "state"),
        [
            (ONE * 2, TOLERANT, "mismatched"),
            (ONE * 2, BITS, "mismatched"),
            (NEXT, BITS, "mismatched"),
            (NEXT, TOLERANT, "inconclusive"),
            (ONE * 2, ULPS, "inconclusive"),
            (ONE, TOLERANT, "inconclusive"),
        ],
    )
    def test_without_digests_statistics_may_prove_a_difference(
        self, tmp_path: Path, value: Tensor, criterion: Criterion, state: str
    ) -> None:
        """A sparse tensor has numbers, and no bytes that say what it is."""
        for side, of_side in (("a", ONE), ("b", value)):
            tensors(tmp_path / side, [tensor("x", of_side)])
            file = tmp_path / side / "tensors_rank0.jsonl"
            (line,) = map(json.loads, file.read_text().splitlines())
            file.write_text(json.dumps({**line, "digest": None, "unread": "layout sparse_coo"}) + "\n")
        (pair,) = compare(bundles_of(tmp_path / "a"), bundles_of(tmp_path / "b"), criterion).pairs
        assert pair.unmatched[0].state == state

    def test_extremes_of_complex_parts_prove_no_more_than_they_can(self, tmp_path: Path) -> None:
        """A number may be larger than its parts, and so may what it is allowed to differ by."""
        a = torch.tensor([complex(1.0, 1.0)])
        loose = Criterion(rtol=0.1, atol=0.0)
        for name, by in (("within", 0.13), ("beyond", 0.15)):
            found = compared(tmp_path / name, [tensor("x", a)], [tensor("x", a + by)], loose)
            assert found.pairs[0].unmatched[0].state == ("inconclusive" if name == "within" else "mismatched")
            kept = compared(tmp_path / name, [tensor("x", a, keep=True)], [tensor("x", a + by, keep=True)], loose)
            assert kept.all_matched is (name == "within")

    def test_values_that_cannot_be_read(self, tmp_path: Path) -> None:
        tensors(tmp_path / "a", [tensor("x", ONE, keep=True)])
        tensors(tmp_path / "b", [tensor("x", NEXT, keep=True)])
        next((tmp_path / "b").glob("*.safetensors")).write_bytes(b"")
        (pair,) = compare(bundles_of(tmp_path / "a"), bundles_of(tmp_path / "b")).pairs
        assert pair.unmatched[0].state == "inconclusive"
        assert "values cannot be read: " in pair.unmatched[0].judgement.reason

    def test_values_of_a_dtype_without_arithmetic_are_compared_by_their_digests(self, tmp_path: Path) -> None:
        packed = torch.tensor([1, 2], dtype=torch.uint8)
        for side, value in (("a", packed), ("b", packed + 1)):
            tensors(tmp_path / side, [tensor("x", value, keep=True)])
            file = tmp_path / side / "tensors_rank0.jsonl"
            file.write_text(file.read_text().replace('"dtype": "uint8"', '"dtype": "float4_e2m1fn_x2"'))
        (pair,) = compare(bundles_of(tmp_path / "a"), bundles_of(tmp_path / "b")).pairs
        assert (pair.counts.mismatched, pair.unmatched[0].judgement.reason) == (1, "values differ")

    def test_what_is_on_one_side_alone_is_missing_on_the_other(self, tmp_path: Path) -> None:
        found = compared(tmp_path, [tensor(x, ONE) for x in "ab"], [tensor(x, ONE) for x in "bc"])
        (pair,) = found.pairs
        assert (found.counts.missing_in_candidate, found.counts.missing_in_baseline) == (1, 1)
        assert [(each.either.layer, each.missing_in) for each in pair.unmatched] == [
            ("a", "candidate"),
            ("c", "baseline"),
        ]
        assert not found.all_matched
        assert found.first_divergence is None

    def test_the_order_of_observation_is_no_identity(self, tmp_path: Path) -> None:
        made = [tensor("a", ONE), tensor("b", ONE * 2), tensor("a", ONE * 3, invocation=1)]
        assert compared(tmp_path, made, made[::-1]).all_matched

    def test_nothing_in_common_is_no_match(self, tmp_path: Path) -> None:
        assert not compared(tmp_path, [], []).all_matched

    def test_only_some_names(self, tmp_path: Path) -> None:
        a = [tensor("a", ONE), tensor("b", ONE), tensor("b", ONE, kind="input")]
        b = [tensor("a", ONE), tensor("b", NEXT), tensor("b", ONE, kind="input")]
        assert compared(tmp_path, a, b, BITS, ("before_*", "after_forward:a.output")).counts.matched == 2

    def test_a_name_twice_is_noted_and_the_first_counts(self, tmp_path: Path) -> None:
        found = compared(tmp_path, [tensor("a", ONE), tensor("a", NEXT)], [tensor("a", ONE)])
        assert found.all_matched
        assert found.pairs[0].notes == [
            "baseline, rank 0: 1 observation(s) have the name and invocation of an earlier one"
        ]


def step(number: int, values: dict[str, Tensor], keep: bool = True) -> list[dict[str, Any]]:
    """A step of three layers: what goes in, what comes out, gradients in the other order, parameters."""
    names = ("l.0", "l.1", "l.2")

    def made(kind: str, order: Sequence[str]) -> list[dict[str, Any]]:
        default = ONE * number
        return [
            tensor(name, values.get(f"{kind} {name}", default), kind=kind, step=number, keep=keep) for name in order
        ]

    return [*made("output", names), *made("output_gradient", names[::-1]), *made("parameter", names)]


class TestSmallTensors:
    def test_of_a_gradient_that_is_rounding_alone_its_layer_has_the_scale(self, tmp_path: Path) -> None:
        weight, noise = torch.tensor([1e-4, -2e-4]), torch.tensor([3e-11, -2e-11])

        def side(noise: Tensor, kind: str = "gradient", layer: str = "k") -> Made:
            bias = tensor("k", noise, kind=kind, keep=True)
            return [tensor(layer, weight, kind="gradient", keep=True), {**bias, "name": "after_backward:k.bias.grad"}]

        for number, (kind, layer, expected) in enumerate(
            (("gradient", "k", 0), ("gradient", "other", 1), ("output", "k", 1))
        ):
            sides = side(noise, kind, layer), side(-noise, kind, layer)
            found = compared(tmp_path / str(number), *sides)
            assert found.counts.mismatched == expected
            alone = compared(tmp_path / str(number), *sides, names=["*bias.grad"])
            assert (alone.counts.mismatched, alone.counts.total) == (expected, 1)

    def test_what_an_absolute_tolerance_lets_pass_whatever_it_is_is_counted(self, tmp_path: Path) -> None:
        small, large = ONE * 1e-8, ONE + 1e-6
        a = [tensor(name, value, keep=True) for name, value in (("x", small), ("y", ONE), ("z", small))]
        b = [tensor(name, value, keep=True) for name, value in (("x", -small), ("y", large), ("z", small))]
        found = compared(tmp_path, a, b, Criterion(rtol=0.0, atol=1e-5))
        assert (found.counts.matched, found.counts.below_atol) == (3, 1)
        (pair,) = found.pairs
        assert pair.largest_matched is not None
        assert pair.largest_matched.either.layer == "x", "the furthest for its size"
        assert compared(tmp_path, a, b).counts.mismatched == 1


class TestFirstDivergence:
    def test_is_that_of_the_baselines_order_with_what_stands_around_it(self, tmp_path: Path) -> None:
        a = [*step(1, {}), *step(2, {})]
        changed = {"output l.1": ONE * 2.5, "output l.2": ONE * 9, "output_gradient l.1": ONE * 7}
        found = compared(tmp_path, a, [*step(1, {}), *step(2, changed)][::-1])
        first = found.first_divergence
        assert first is not None
        either = first.pair.either
        assert (either.name, either.invocation, either.step) == ("after_forward:l.1.output", 1, 2)
        assert (first.is_clean, first.before_it, first.forward_of_step) == (True, {"matched": 10}, {})
        assert [(each.observation.layer, each.state) for each in first.before] == [
            ("l.1", "matched"),
            ("l.2", "matched"),
            ("l.0", "matched"),
        ]
        assert [(each.observation.kind, each.state) for each in first.after] == [
            ("output", "mismatched"),
            ("output_gradient", "matched"),
            ("output_gradient", "mismatched"),
        ]
        assert first.pair.difference is not None
        assert (first.pair.difference.baseline, first.pair.difference.candidate) == (4.0, 5.0)
        assert list(found.pairs[0].firsts) == ["forward", "backward"]
        assert [(row.name, row.counts["mismatched"], row.counts["matched"]) for row in found.pairs[0].by_name] == [
            ("after_forward:l.1.output", 1, 1),
            ("after_forward:l.2.output", 1, 1),
            ("after_backward:l.1.output_grad", 1, 1),
        ]

    def test_in_the_backward_pass_after_a_forward_pass_that_matched(self, tmp_path: Path) -> None:
        found = compared(tmp_path, step(1, {}), step(1, {"output_gradient l.1": ONE * 7}))
        first = found.first_divergence
        assert first is not None
        assert (first.pair.either.direction, first.forward_of_step) == ("backward", {"matched": 3})

    def test_in_the_optimizers_update(self, tmp_path: Path) -> None:
        found = compared(tmp_path, step(1, {}), step(1, {"parameter l.1": ONE * 7}))
        assert list(found.pairs[0].firsts) == ["update"]

    def test_what_is_unclear_before_it_is_said(self, tmp_path: Path) -> None:
        a = [tensor("a", ONE), tensor("b", ONE), tensor("c", ONE)]
        b = [tensor("a", NEXT), tensor("c", ONE * 3)]
        first = compared(tmp_path, a, b).first_divergence
        assert first is not None
        assert (first.is_clean, first.before_it) == (False, {"inconclusive": 1, "missing": 1})

    @pytest.mark.parametrize("keep", [True, False])
    def test_bit_for_bit_another_dtype_is_where_it_begins(self, tmp_path: Path, keep: bool) -> None:
        changed = {"output l.1": ONE.to(torch.bfloat16), "output l.2": ONE * 1.001}
        found = compared(tmp_path, step(1, {}, keep), step(1, changed, keep), BITS)
        first = found.first_divergence
        assert first is not None
        assert (first.pair.either.layer, first.is_clean) == ("l.1", True)
        assert first.pair.judgement.reason == "dtypes differ: float32, bfloat16"
        if keep:
            assert first.pair.difference is not None
            assert (first.pair.difference.outside, first.pair.difference.largest_absolute) == (2, 0.0)

    def test_another_dtype_is_told_also_where_values_match(self, tmp_path: Path) -> None:
        changed = {"output l.1": ONE.to(torch.bfloat16), "output_gradient l.0": ONE.to(torch.bfloat16)}
        found = compared(tmp_path, step(1, {}), step(1, changed))
        assert found.all_matched
        other = found.pairs[0].other_dtype
        assert other is not None
        assert (other.baseline.layer, other.candidate.dtype, other.count) == ("l.1", "bfloat16", 2)
        assert found.to_json()["pairs"][0]["other_dtype"]["candidate"] == "bfloat16"

    def test_another_shape_is_where_it_begins(self, tmp_path: Path) -> None:
        changed = {"output l.0": torch.cat([ONE, ONE]), "output l.1": ONE * 7}
        first = compared(tmp_path, step(1, {}), step(1, changed)).first_divergence
        assert first is not None
        assert first.pair.either.layer == "l.0"

    def test_what_the_program_observes_itself_says_nothing_of_a_forward_pass_that_goes_on(self, tmp_path: Path) -> None:
        a = [tensor("x", ONE), tensor("mine", ONE, kind="user"), tensor("y", ONE)]
        b = [tensor("x", ONE), tensor("mine", ONE + 1, kind="user"), tensor("y", ONE + 1)]
        first = compared(tmp_path, a, b, BITS).first_divergence
        assert first is not None
        assert (first.pair.either.direction, first.forward_of_step) == ("user", {})

    def test_invocations_of_different_steps_are_noted(self, tmp_path: Path) -> None:
        a = [tensor("x", ONE, step=number, invocation=number - 1) for number in (1, 2, 3)]
        b = [tensor("x", ONE, step=number, invocation=at) for at, number in enumerate((1, 1, 2, 3))]
        (pair,) = compared(tmp_path, a, b).pairs
        (note,) = pair.notes
        assert note.startswith("2 observation(s) have the same name and invocation in different steps, from ")
        assert note.endswith(
            "after_forward:x.output, invocation 1, on: step 2 of the baseline, step 1 of the candidate"
        )

    def test_a_dtype_that_changed_before_it_is_named(self, tmp_path: Path) -> None:
        changed = {"output l.1": ONE.to(torch.bfloat16), "output l.2": ONE * 1.001}
        first = compared(tmp_path, step(1, {}), step(1, changed)).first_divergence
        assert first is not None
        assert first.pair.either.layer == "l.2"
        assert first.dtype_changed is not None
        assert [(each.layer, each.dtype) for each in first.dtype_changed] == [("l.1", "float32"), ("l.1", "bfloat16")]

    def test_the_furthest_apart_of_what_matched(self, tmp_path: Path) -> None:
        found = compared(tmp_path, step(1, {}), step(1, {"output l.1": NEXT, "output l.2": ONE}))
        assert found.all_matched
        assert (found.counts.matched, found.counts.identical) == (9, 8)
        assert found.pairs[0].largest_matched is not None
        assert found.pairs[0].largest_matched.either.layer == "l.1"


class TestSides:
    def test_each_rank_is_compared_with_the_same_rank(self, tmp_path: Path) -> None:
        for rank in (0, 1):
            tensors(tmp_path / "a", step(1, {}), rank=rank, ranks=2)
            tensors(tmp_path / "b", step(1, {"output l.2": ONE * 5} if rank else {}), rank=rank, ranks=2)
        found = compare(bundles_of(tmp_path / "a"), bundles_of(tmp_path / "b"))
        assert [(pair.baseline.rank, pair.counts.all_matched) for pair in found.pairs] == [(0, True), (1, False)]
        assert found.earliest is found.pairs[1]
        assert found.to_json()["first_divergence"]["rank"] == 1
        assert not found.all_matched

    def test_a_rank_without_its_counterpart(self, tmp_path: Path) -> None:
        for rank in (0, 1):
            tensors(tmp_path / "a", step(1, {}), rank=rank, ranks=2)
        for rank in (0, 2):
            tensors(tmp_path / "b", step(1, {}), rank=rank, ranks=2)
        found = compare(bundles_of(tmp_path / "a"), bundles_of(tmp_path / "b"))
        assert (found.only_baseline, found.only_candidate, found.all_matched) == (("rank 1",), ("rank 2",), False)

    def test_of_several_processes_of_a_rank_those_that_saw_something_in_the_order_in_which_they_began(
        self, tmp_path: Path
    ) -> None:
        """The names of their files are no order: the first one that opens them has the plain one."""
        first, second = (step(1, {"output l.0": ONE * by}) for by in (1, 2))
        tensors(tmp_path / "a", [], started_at="2026-01-01T00:00:00+00:00")
        tensors(tmp_path / "a", first, pid=998, started_at="2026-01-01T00:00:01+00:00")
        tensors(tmp_path / "a", second, pid=1003, started_at="2026-01-01T00:00:02+00:00")
        tensors(tmp_path / "b", second, started_at="2026-01-02T00:00:05+00:00")
        tensors(tmp_path / "b", first, pid=77, started_at="2026-01-02T00:00:01+00:00")
        found = compare(bundles_of(tmp_path / "a"), bundles_of(tmp_path / "b"))
        assert [(pair.baseline.stem, pair.candidate.stem) for pair in found.pairs] == [
            ("rank0_p998", "rank0_p77"),
            ("rank0_p1003", "rank0"),
        ]
        assert found.all_matched

    def test_a_further_process_of_a_rank_is_told_by_its_own_name(self, tmp_path: Path) -> None:
        tensors(tmp_path / "a", step(1, {}))
        tensors(tmp_path / "b", step(1, {}))
        tensors(tmp_path / "b", step(1, {}), pid=77, started_at="2026-01-02T00:00:01+00:00")
        found = compare(bundles_of(tmp_path / "a"), bundles_of(tmp_path / "b"))
        assert (found.only_candidate, found.counts.matched, found.all_matched) == (("rank 0, rank0_p77",), 9, False)

    def test_a_rank_that_saw_nothing_at_all_is_compared(self, tmp_path: Path) -> None:
        tensors(tmp_path / "a", step(1, {}))
        tensors(tmp_path / "b", [])
        found = compare(bundles_of(tmp_path / "a"), bundles_of(tmp_path / "b"))
        assert (found.counts.missing_in_candidate, found.all_matched) == (9, False)

    def test_json_is_plain(self, tmp_path: Path) -> None:
        found = compared(
            tmp_path, [*step(1, {}), tensor("z", ONE)], step(1, {"output l.0": ONE / 0, "output l.1": NAN})
        )
        text = json.dumps(found.to_json(1), allow_nan=False)
        told = json.loads(text)
        assert told["counts"]["mismatched"] == 2
        (pair,) = told["pairs"]
        assert (len(pair["unmatched"]), pair["num_unmatched"], len(pair["by_name"])) == (1, 3, 1)
        assert told["first_divergence"]["difference"]["candidate"] == "inf"
        assert told["first_divergence"]["is_clean"] is True
