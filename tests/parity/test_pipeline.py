"""Our engine beside the stock logger on TrainPipelineSparseDist: what is followed, where, and what the summary says."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.parity.both import Both, Case, InSummary, Record, run_cases
from tests.parity.differences import (
    BATCH_OF_BACKWARD,
    FOLLOW_SCOPE,
    NO_CHANNELS,
    NO_FOLLOW,
    OPEN_END,
    SPARSE_WAIT,
    SPARSE_WAIT_COUNTED,
)
from tests.parity.programs import PIPELINE

EACH_STEP = {"NANLOG_SAMPLE_EVERY": "1"}
FLAT = {**EACH_STEP, "NANLOG_PIPELINE": "1"}
BAD = ("--bad", "4")
TOO_LARGE = (*BAD, "--value", "61")
RANGE = [0, 60]
LINEAR = {"types": ["Linear"]}
STAGES = (SPARSE_WAIT, SPARSE_WAIT_COUNTED)


def follow(*diagnostics: str, **entry: Any) -> dict[str, str]:
    entries = [{"tensor": "embedding_features", **entry}]
    return {"NANLOG_SPEC": json.dumps({"follow": entries, "sample_every": 1, "diagnostics": diagnostics})}


REQUESTED = (
    InSummary("What has no effect is not in force.", "stage_reads", lambda ours, stock: (ours, stock) == (False, True)),
    InSummary(
        "What has no effect is not in force.", "track_every_layer", lambda ours, stock: (ours, stock) == (False, True)
    ),
)

OUT_OF_RANGE_ONCE_MORE = InSummary(
    "The batch that is out of range is seen at sparse_wait, too.",
    "oob_records",
    lambda ours, stock: ours == stock + 1 > 1,
)

CASES = {
    "stages": Case(PIPELINE, follow(stages=True, bounds=RANGE), BAD, STAGES),
    "stages, with diagnostics": Case(
        PIPELINE,
        follow("addr", "locate", "bad_values", "dump_tensor", stages=True, bounds=RANGE),
        TOO_LARGE,
        (*STAGES, OUT_OF_RANGE_ONCE_MORE),
    ),
    "scope": Case(PIPELINE, follow(stages=True, scope=LINEAR, stride=2, bounds=RANGE), BAD, (*STAGES, FOLLOW_SCOPE)),
    "no wrappers": Case(PIPELINE, follow(pipeline=False, scope=LINEAR, bounds=RANGE), BAD, (FOLLOW_SCOPE,)),
    "side stream": Case(PIPELINE, follow(stages=True, stage_reads=True), BAD, STAGES),
    "flat": Case(PIPELINE, FLAT, BAD, (*STAGES, BATCH_OF_BACKWARD)),
    "flat, at each layer": Case(
        PIPELINE,
        {
            **FLAT,
            "NANLOG_TRACK_EVERY_LAYER": "1",
            "NANLOG_TRACK_LAYER_STRIDE": "2",
            "NANLOG_WATCH_TYPES": "Linear,Tanh",
        },
        BAD,
        (*STAGES, BATCH_OF_BACKWARD),
    ),
    "flat, without wrappers": Case(
        PIPELINE, {**EACH_STEP, "NANLOG_PIPELINE_OFF_FOLLOW": "1", "NANLOG_TRACK_EVERY_LAYER": "1"}, BAD
    ),
    "flat, without a follow": Case(
        PIPELINE,
        {**EACH_STEP, "NANLOG_TRACK_EVERY_LAYER": "1", "NANLOG_STAGE_READS": "1"},
        BAD,
        (NO_FOLLOW, *REQUESTED),
    ),
    "flat ranges": Case(
        PIPELINE,
        {**FLAT, "NANLOG_BOUNDS": "embedding:0:60", "NANLOG_BOUND_HI": "20"},
        TOO_LARGE,
        (*STAGES, OUT_OF_RANGE_ONCE_MORE, BATCH_OF_BACKWARD, OPEN_END),
    ),
    "range for all beside a spec": Case(
        PIPELINE,
        {**follow(stages=True), "NANLOG_BOUND_HI": "60"},
        TOO_LARGE,
        (*STAGES, OUT_OF_RANGE_ONCE_MORE, OPEN_END),
    ),
    "watched and followed": Case(
        PIPELINE,
        {
            "NANLOG_SPEC": json.dumps(
                {
                    "watch": [{"scope": LINEAR, "tensors": ["input", "output", "weight", "bias", "grad"]}],
                    "follow": [{"tensor": "embedding_features", "stages": True}],
                    "sample_every": 1,
                }
            )
        },
        BAD,
        (*STAGES, BATCH_OF_BACKWARD),
    ),
    "sparse": Case(
        PIPELINE,
        {**FLAT, "NANLOG_SPARSE": "1", "NANLOG_TRACK_ATTR": "embedding_features,kjt,parts", "NANLOG_WATCH_TYPES": ""},
        BAD,
        (*STAGES, NO_CHANNELS),
    ),
    "sparse, heavy": Case(
        PIPELINE,
        {
            **FLAT,
            "NANLOG_SPARSE": "1",
            "NANLOG_SPARSE_HEAVY": "1",
            "NANLOG_TRACK_ATTR": "kjt",
            "NANLOG_WATCH_TYPES": "",
        },
        BAD,
        (*STAGES, NO_CHANNELS),
    ),
    "all tensors of the batch": Case(
        PIPELINE, {**FLAT, "NANLOG_TRACK_ATTR": "nothing", "NANLOG_WATCH_TYPES": ""}, BAD, (*STAGES, NO_CHANNELS)
    ),
    "all tensors, the range of one": Case(
        PIPELINE,
        {
            "NANLOG_SPEC": json.dumps(
                {"follow": [{"tensor": "nothing", "stages": True, "bounds": RANGE}], "sample_every": 1}
            )
        },
        BAD,
        STAGES,
    ),
    "most": Case(
        PIPELINE,
        {
            **FLAT,
            "NANLOG_TRACK_ATTR": "parts,embedding_features",
            "NANLOG_TRACK_MAX": "2",
            "NANLOG_WATCH_TYPES": "",
        },
        BAD,
        (*STAGES, NO_CHANNELS),
    ),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Both]:
    return run_cases(tmp_path_factory, "pipeline", CASES)


@pytest.mark.parametrize("name", CASES)
def test_records_and_summary_are_the_stock_loggers(runs: dict[str, Both], name: str) -> None:
    runs[name].check(CASES[name].differences)


@pytest.mark.parametrize("name", ["stages", "sparse", "all tensors of the batch"])
def test_each_batch_is_seen_at_sparse_wait_with_the_values_of_sparse_start(runs: dict[str, Both], name: str) -> None:
    of: dict[str, list[tuple[Any, ...]]] = {"sparse_start": [], "sparse_wait": []}
    for record in runs[name].ours.records:
        if record["phase"] in of:
            of[record["phase"]].append(_content(record))
    assert sorted(of["sparse_wait"]) == sorted(of["sparse_start"])
    assert {content[1] for content in of["sparse_wait"]} == set(range(1, 7))


@pytest.mark.parametrize("name", ["flat", "watched and followed"])
def test_what_is_recorded_within_a_step_carries_the_batch_that_went_into_forward(
    runs: dict[str, Both], name: str
) -> None:
    records = [record for record in runs[name].ours.records if record["direction"] != "pipeline"]
    assert records
    assert {(record["phase"], record["batch_id"] - record["step"]) for record in records} == {("forward", 0)}


def test_the_modes_are_told_apart(runs: dict[str, Both]) -> None:
    modes = {name: both.ours.summary["follow_mode"] for name, both in runs.items()}
    assert modes["stages"] == "stage_wrappers"
    assert modes["side stream"] == "stage_wrappers"
    assert modes["no wrappers"] == "forward_blocks"
    assert modes["flat, without a follow"] == "off"


def test_without_a_device_stage_reads_fall_back_and_ours_says_so(runs: dict[str, Both]) -> None:
    for left in (runs["side stream"].stock, runs["side stream"].ours):
        assert (left.summary["stage_reads"], left.summary["stage_reads_active"]) == (True, False)
        assert left.summary["stage_read_count"] == 0
    warnings = [line for line in runs["side stream"].ours.ran.err.splitlines() if "WARNING" in line]
    assert any("side stream" in warning for warning in warnings)


def test_what_is_out_of_range_is_found_at_the_copy_stage_and_saved(runs: dict[str, Both]) -> None:
    ours = runs["stages, with diagnostics"].ours
    assert ours.summary["first_oob"]["phase"] == "copy"
    assert ours.summary["first_oob"]["batch_id"] == 4
    assert ours.summary["peak_finite_max"] == 61
    first = next(record for record in ours.records if record["bad"])
    assert (first["first_bad_row"], first["first_bad_col"], first["first_bad_value"]) == (1, 2, 61)
    (tensor,) = ours.dumps.values()
    assert tensor[1, 2] == 61


def _content(record: Record) -> tuple[Any, ...]:
    values = (record[name] for name in ("nan_count", "finite_abs_max", "finite_min", "finite_max", "shape"))
    return (record["layer_name"], record["batch_id"], *values)
