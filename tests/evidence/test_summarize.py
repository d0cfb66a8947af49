"""The metrics of captured evidence, and that what a collector raises is never taken for a yes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from aorta_collectors.api import Artifacts, Expected, Verdict, Verification
from aorta_collectors.errors import ArtifactError
from aorta_collectors.evidence.directory import Anchor
from aorta_collectors.evidence.trial import check_artifacts
from aorta_collectors.layer_numerics.collector import LayerNumerics
from tests.evidence.conftest import RUN_ID
from tests.evidence.damage import BAD_OPTIONS, COLLECTOR, OPTIONS, Copy, check, edit, second_rank, verdict


class TestSummarize:
    @staticmethod
    def bad(step: int, calls: int, layer: str) -> dict[str, Any]:
        return {"step": step, "layer": layer, "direction": "fwd", "kind": "nan", "matmul_calls_so_far": calls}

    @pytest.mark.parametrize(
        ("first", "second", "expected"),
        [
            ((3, 1, "a"), (2, 9, "b"), (2, 1, "b")),
            ((2, 9, "a"), (2, 8, "b"), (2, 1, "b")),
            ((2, 8, "a"), (2, 8, "b"), (2, 0, "a")),
            (None, (5, 1, "b"), (5, 1, "b")),
            ((1, 1, "a"), None, (1, 0, "a")),
        ],
    )
    def test_the_first_bad_record_is_the_earliest_of_all_ranks(
        self, artifacts: Copy, first: Any, second: Any, expected: tuple[int, int, str]
    ) -> None:
        directory = artifacts()
        second_rank(directory, first_bad=self.bad(*second) if second else None)
        edit(directory, 0, first_bad=self.bad(*first) if first else None)
        metrics = check(directory).metrics
        names = ("first_bad_step", "first_bad_rank", "first_bad_layer", "first_bad_direction", "first_bad_kind")
        assert tuple(metrics[f"layer_numerics_{name}"] for name in names) == (*expected, "fwd", "nan")

    @pytest.mark.parametrize(
        ("first", "second", "rank"),
        [
            ({"seq": 4}, {"seq": 3}, 1),
            ({"seq": 3}, {"seq": 3}, 0),
            # Calls are counted from the beginning of the run, and say nothing of the place within a step.
            ({"seq": 3, "matmul_calls_so_far": 99}, {"seq": 4}, 0),
        ],
    )
    def test_within_a_step_the_place_decides(
        self, artifacts: Copy, first: dict[str, Any], second: dict[str, Any], rank: int
    ) -> None:
        directory = artifacts()
        second_rank(directory, first_bad={**self.bad(2, 1, "b"), **second})
        edit(directory, 0, first_bad={**self.bad(2, 1, "a"), **first})
        assert check(directory).metrics["layer_numerics_first_bad_rank"] == rank

    def test_where_one_rank_evaluates_alone_the_training_steps_decide(self, artifacts: Copy) -> None:
        directory = artifacts()
        second_rank(directory, first_bad={**self.bad(4, 1, "b"), "evaluation_steps": 2}, evaluation_steps=2)
        edit(directory, 0, first_bad=self.bad(3, 1, "a"))
        assert check(directory).metrics["layer_numerics_first_bad_rank"] == 1
        edit(directory, 1, first_bad=self.bad(4, 1, "b"), evaluation_steps=0)
        assert check(directory).metrics["layer_numerics_first_bad_rank"] == 0

    def test_an_earlier_attempt_was_earlier_whatever_its_steps(self, artifacts: Copy) -> None:
        directory = artifacts()
        second_rank(directory, first_bad=self.bad(2, 1, "b"), restart=1, launcher="a")
        edit(directory, 0, first_bad=self.bad(5, 1, "a"), restart=0, launcher="b")
        metrics = check(directory).metrics
        assert (metrics["layer_numerics_first_bad_rank"], metrics["layer_numerics_first_bad_step"]) == (0, 5)
        edit(directory, 0, first_bad=None)
        metrics = check(directory).metrics
        assert (metrics["layer_numerics_first_bad_rank"], metrics["layer_numerics_first_bad_attempt"]) == (1, 1)

    def test_records_are_added_over_ranks_and_steps_are_not(self, artifacts: Copy) -> None:
        directory = artifacts()
        alone = check(directory).metrics
        second_rank(directory)
        both = check(directory).metrics
        assert both["layer_numerics_records"] == 2 * int(alone["layer_numerics_records"])
        assert both["layer_numerics_steps"] == alone["layer_numerics_steps"]
        assert both["layer_numerics_modules"] == alone["layer_numerics_modules"]

    def test_every_metric_is_named_after_the_collector(self, artifacts: Copy) -> None:
        metrics = check(artifacts("bad"), BAD_OPTIONS).metrics
        assert all(name.startswith("layer_numerics_") for name in metrics)
        assert all(isinstance(value, (int, float, str)) for value in metrics.values())


class TestStockLogger:
    def test_its_artifacts_carry_no_run_id_and_are_accepted_with_the_spec_applied(self, artifacts: Copy) -> None:
        directory = artifacts()
        edit(directory, run_id=..., status=..., ended_by=..., config=..., spec_applied=True, spec_present=True)
        raw = {"frontend": "aorta", "NANLOG_SPEC": '{"follow": [{"tensor": "x"}]}'}
        assert verdict(directory, raw)[0] is Verdict.CAPTURED
        edit(directory, spec_applied=False)
        assert verdict(directory, raw)[0] is Verdict.MISAPPLIED


class TestCheckArtifacts:
    """What a collector raises is never taken for a yes."""

    @pytest.mark.parametrize(
        ("error", "reason"),
        [
            (ArtifactError("beats: torn"), "beats: torn"),
            (KeyError("x"), "verification itself failed: KeyError: 'x'"),
        ],
    )
    def test_an_exception_in_verify_is_invalid(self, tmp_path: Path, error: Exception, reason: str) -> None:
        class Failing(LayerNumerics):
            name = "failing"

            def verify(self, artifacts: Artifacts, expected: Expected) -> Verification:
                raise error

        expected = Expected(COLLECTOR.validate({}), frozenset({"x"}))
        found = check_artifacts(Failing(), Anchor(tmp_path), tmp_path, expected)
        assert (found.verification.verdict, found.verification.reason) == (Verdict.INVALID, reason)

    def test_an_exception_in_summarize_is_invalid_too(self, artifacts: Copy) -> None:
        class Failing(LayerNumerics):
            name = "failing"

            def summarize(self, artifacts: Artifacts) -> Mapping[str, float | int | str]:
                raise ZeroDivisionError

        directory = artifacts()
        expected = Expected(COLLECTOR.validate(OPTIONS), frozenset({RUN_ID}))
        found = check_artifacts(Failing(), Anchor(directory), directory, expected)
        assert found.verification.verdict is Verdict.INVALID
        assert found.metrics == {}
