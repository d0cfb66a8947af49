"""Bricks far from the roofline: which are named, and what rules say by what they saw."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from aorta_collectors.analysis.profile_naive import NaiveBricks, naive_of
from tests.analysis.profiled import profile_with
from tests.numerics.synthetic import Line, brick, escalation


def found_in(path: Path, *bricks: Line, threshold: float = 2.0, **more: Any) -> NaiveBricks:
    return naive_of(profile_with(path, bricks, **more), threshold)


def rules(found: NaiveBricks) -> list[str]:
    (only,) = found.found
    return [advice.rule for advice in only.advice]


#: Of bfloat16, so that nothing is said of precision.
BASE: Line = {"dtype": "bfloat16", "efficiency": 0.1}


def test_only_what_is_beyond_the_threshold_is_named_and_the_dearest_first(tmp_path: Path) -> None:
    found = found_in(
        tmp_path,
        brick("a", self_us=4000, efficiency=0.5),
        brick("b", self_us=400, efficiency=0.01),
        brick("c", self_us=4000, efficiency=0.2),
        brick("d", self_us=4000, efficiency=None, bound=None),
    )
    assert [each.pattern for each in found.found] == ["c", "b"]
    first = found.found[0]
    assert (first.times, first.own_us, first.allowed_us) == (5, 1000, pytest.approx(200))
    assert (first.saved_ms, first.saved_share) == (pytest.approx(0.8), pytest.approx(0.08))
    assert found.unknown == 1


def test_repeated_layers_of_which_the_same_is_said_are_one(tmp_path: Path) -> None:
    slow = {**BASE, "bound": "launch", "operations": 50}
    found = found_in(
        tmp_path, *(brick(f"h.{index}.mlp", module_type="MLP", self_us=4000, **slow) for index in range(3))
    )
    (only,) = found.found
    assert (only.pattern, len(only.layers), only.times) == ("h.*.mlp", 3, pytest.approx(10))
    assert only.saved_ms == pytest.approx(3 * 0.9)


def test_many_small_operations_are_to_be_fused(tmp_path: Path) -> None:
    found = found_in(tmp_path, brick("a", self_us=4 * 300, bound="launch", operations=60, **BASE))
    assert rules(found) == ["fuse"]
    assert found.found[0].advice[0].saw == "60 operations of 5 us each in a call; the smallest takes 2"


def test_calls_for_each_sample_are_to_be_batched(tmp_path: Path) -> None:
    found = found_in(tmp_path, brick("a", calls=16, self_us=16 * 30, bound="memory", operations=2, **BASE))
    assert rules(found) == ["batch"]
    assert found.found[0].advice[0].saw == "4 calls a step, each of small operations: as many as there are samples"


def test_a_chain_bound_by_memory_is_to_be_fused(tmp_path: Path) -> None:
    chain = brick("a", self_us=4 * 5000, bound="memory", operations=6, flops=1e6, bytes=1e7, **BASE)
    assert rules(found_in(tmp_path, chain)) == ["chain"]


@pytest.mark.parametrize(
    ("dominant", "word"),
    [("read", "DataLoader"), ("futex", "set_num_threads"), ("mmap", "buffers"), ("compute", "Python")],
)
def test_time_outside_of_operations_is_explained_by_what_looks_found(tmp_path: Path, dominant: str, word: str) -> None:
    look = escalation("a")
    look["breakdown"]["dominant"] = dominant
    found = found_in(tmp_path, brick("a", self_us=4000, bound="host", **BASE), escalations=[look])
    (advice,) = found.found[0].advice
    assert (advice.rule, word in advice.do) == ("host", True)
    assert advice.saw.startswith(f"{dominant} took {look['breakdown'][f'{dominant}_us'] / 1000:.3g} ms of a step")


def test_a_sleep_in_a_step_that_computes_otherwise_is_found(tmp_path: Path) -> None:
    look = escalation("a")
    look["breakdown"] |= {"dominant": "compute", "other_us": 4100.0}
    found = found_in(tmp_path, brick("a", self_us=4 * 4000, bound="host", **BASE), escalations=[look])
    assert "it sleeps" in found.found[0].advice[0].do


def test_wild_times_and_steady_small_products_are_told(tmp_path: Path) -> None:
    of_products = {**BASE, "bound": "compute", "operations": 1, "flops": 1e7}
    assert rules(found_in(tmp_path / "a", brick("a", self_us=4 * 4000, cv=0.7, **of_products))) == ["varies"]
    assert rules(found_in(tmp_path / "b", brick("a", self_us=4 * 4000, cv=0.1, **of_products))) == ["products"]


def test_a_brick_without_operations_is_all_to_be_saved(tmp_path: Path) -> None:
    none = {"bound": "host", "flops": None, "bytes": None, "operations": 0, "efficiency": None}
    found = found_in(tmp_path, brick("sleeps", self_us=4 * 4000, **none))
    (only,) = found.found
    assert (only.times, only.saved_ms, rules(found)) == (None, pytest.approx(4), ["host"])
    assert found.unknown == 0


class TestAttention:
    SEPARATE = ("aten::bmm", "aten::_softmax")

    def looks(self, layer: str, *names: str) -> Line:
        kernels = [{"name": name, "calls": 2, "self_us": 9.0, "device_us": None} for name in names]
        return escalation(layer, kernels=kernels)

    def test_by_separate_operations_is_told(self, tmp_path: Path) -> None:
        slow = brick("h.0.attn", self_us=4 * 9000, bound="compute", cv=None, **BASE)
        looks = [self.looks("h.0.attn", *self.SEPARATE), self.looks("h.0", *self.SEPARATE)]
        outer = brick("h.0", self_us=4 * 9000, bound="compute", cv=None, **BASE)
        said = {
            each.pattern: [advice.rule for advice in each.advice]
            for each in found_in(tmp_path, slow, outer, escalations=looks).found
        }
        assert said == {"h.0.attn": ["attention"], "h.0": []}

    @pytest.mark.parametrize(
        "names",
        [
            ("aten::bmm", "aten::_softmax", "aten::_scaled_dot_product_flash_attention_for_cpu"),
            ("aten::bmm", "aten::_log_softmax"),
            ("aten::addmm", "aten::_softmax"),
        ],
    )
    def test_what_is_none_is_not(self, tmp_path: Path, names: tuple[str, ...]) -> None:
        slow = brick("h.0.attn", self_us=4 * 9000, bound="compute", cv=None, **BASE)
        assert rules(found_in(tmp_path, slow, escalations=[self.looks("h.0.attn", *names)])) == []


def test_products_in_float32_are_told_once(tmp_path: Path) -> None:
    found = found_in(tmp_path, brick("a", efficiency=0.9, self_us=4000), brick("b", efficiency=0.9, self_us=4000))
    assert found.found == ()
    assert found.precision is not None
    assert (found.precision.dtype, found.precision.times, found.precision.bricks) == ("bfloat16", 2, 2)
    assert found.precision.saved_ms == pytest.approx(1)


def test_products_of_a_machine_that_is_no_faster_are_not(tmp_path: Path) -> None:
    slow = {"roofline": {"device": "x", "flops_per_s": {"float32": 1e11, "bfloat16": 9e10}, "bytes_per_s": 1e10}}
    slow["roofline"] |= {"launch_us": 1.0, "threads": 1, "measured_at": "now"}
    assert found_in(tmp_path, brick("a"), summary=slow).precision is None
