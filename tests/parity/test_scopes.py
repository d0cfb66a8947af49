"""Our engine beside the stock logger where scopes overlap, and on batches in which the stock logger does not look."""

from __future__ import annotations

import json

import pytest

from tests.parity.both import Both, Case, Differs, InSummary, OnlyOurs, OnlyStock, Record, run_cases
from tests.parity.differences import SPARSE_WAIT, SPARSE_WAIT_COUNTED
from tests.parity.programs import PIPELINE

EACH_STEP = {"NANLOG_SAMPLE_EVERY": "1"}
BAD = ("--bad", "4")
STAGES = (SPARSE_WAIT, SPARSE_WAIT_COUNTED)
ROOT = "_dmp_wrapped_module.module."

NOT_THINNED = OnlyOurs(
    "NANLOG_WATCH_STRIDE thins what is watched, not where a followed tensor is read again.",
    lambda record: record.get("checkpoint", "") in (f"{ROOT}project.1", f"{ROOT}over"),
)
NOT_THINNED_COUNT = InSummary(
    "So there are hooks on the modules of both scopes.", "watched_count", lambda ours, stock: (ours, stock) == (4, 2)
)
NOT_THINNED_NAMES = InSummary(
    "And their names are listed.", "watched_names", lambda ours, stock: set(stock) < set(ours) and len(ours) == 4
)
# Two groups and two follows, each with a scope of its own. Linear layers in order: project.0, project.2, over.
GROUPS = {
    "watch": [
        {"scope": {"names": ["over"]}, "tensors": ["output"]},
        {"scope": {"types": ["Linear"]}, "tensors": ["weight"], "stride": 2},
    ],
    "follow": [
        {"tensor": "embedding_features", "scope": {"names": ["project.0"]}, "bounds": [0, 60]},
        {"tensor": "label", "scope": {"names": ["over"]}, "bounds": [0, 0.5]},
    ],
    "sample_every": 1,
}
# What each of them asks for: role, and which layer or where it was read again.
EXACT = {("act", "over"), ("weight", "project.0"), ("weight", "over")}
EXACT_AGAIN = {("embedding_features", "project.0"), ("label", "over")}


def _was_not_asked_for(record: Record) -> bool:
    """Groups that were merged: the tensors of each for the modules of all, without a stride."""
    if record["direction"] != "pipeline":
        return (record["role"], record["layer_name"].removeprefix(ROOT)) not in EXACT
    again = record.get("checkpoint", "").removeprefix(ROOT)
    return bool(again) and (record["layer_name"], again) not in EXACT_AGAIN


NOT_MERGED = (
    OnlyStock("Each group has its own scope, tensors and stride. The stock logger merges them.", _was_not_asked_for),
    Differs(
        "Therefore fewer tensors have been seen.",
        ("matmul_calls_so_far",),
        lambda ours, stock: 3 * ours["matmul_calls_so_far"] <= stock["matmul_calls_so_far"],
    ),
    InSummary("As above.", "matmul_calls_total", lambda ours, stock: (ours, stock) == (6, 18)),
)
NOT_MERGED_SUMMARY = (
    InSummary(
        "Labels are read again where that was asked for, and at one more stage.",
        "oob_records",
        lambda ours, stock: ours != stock,
    ),
    InSummary(
        "Names of the watch alone.",
        "watch_names",
        lambda ours, stock: (ours, stock) == (["over"], ["over", "project.0"]),
    ),
    InSummary("Modules that were asked for.", "watched_count", lambda ours, stock: (ours, stock) == (2, 3)),
    InSummary("Modules that were asked for.", "watched_names", lambda ours, stock: set(ours) < set(stock)),
    InSummary("Parameters that were asked for.", "params_scanned", lambda ours, stock: (ours, stock) == (2, 3)),
)

CASES = {
    "watch stride beside a follow": Case(
        PIPELINE,
        {
            **EACH_STEP,
            "NANLOG_PIPELINE": "1",
            "NANLOG_TRACK_EVERY_LAYER": "1",
            "NANLOG_WATCH_STRIDE": "2",
            "NANLOG_CHANNELS": "act",
            "NANLOG_WATCH_TYPES": "Linear,Tanh",
        },
        BAD,
        (*STAGES, NOT_THINNED, NOT_THINNED_COUNT, NOT_THINNED_NAMES),
    ),
    "groups": Case(PIPELINE, {"NANLOG_SPEC": json.dumps(GROUPS)}, BAD, (*STAGES, *NOT_MERGED, *NOT_MERGED_SUMMARY)),
}
# Without a pipeline, on batches that are dictionaries.
_OFF = {**EACH_STEP, "NANLOG_PIPELINE_OFF_FOLLOW": "1", "NANLOG_WATCH_TYPES": ""}
LOOPS = {
    "dictionaries": Case(PIPELINE, _OFF, ("--plain", *BAD), bare=True),
    "by keyword": Case(PIPELINE, _OFF, ("--keyword", *BAD), bare=True),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Both]:
    return run_cases(tmp_path_factory, "scopes", {**CASES, **LOOPS})


@pytest.mark.parametrize("name", CASES)
def test_records_and_summary_are_the_stock_loggers(runs: dict[str, Both], name: str) -> None:
    runs[name].check(CASES[name].differences)


def test_groups_are_exact(runs: dict[str, Both]) -> None:
    records = runs["groups"].ours.records
    watched = {(r["role"], r["module_path"]) for r in records if r["direction"] != "pipeline"}
    again = {(r["layer_name"], r["checkpoint"].removeprefix(ROOT)) for r in records if "checkpoint" in r}
    assert watched == EXACT
    assert again == EXACT_AGAIN


def test_a_watch_stride_leaves_the_channels_to_every_second_layer(runs: dict[str, Both]) -> None:
    records = runs["watch stride beside a follow"].ours.records
    assert {r["module_path"] for r in records if r["role"] == "act"} == {"project.0", "project.2"}
    again = {r["checkpoint"].removeprefix(ROOT) for r in records if "checkpoint" in r}
    assert again == {"project.0", "project.1", "project.2", "over"}


def test_a_dictionary_is_followed_and_left_as_it_is(runs: dict[str, Both]) -> None:
    """The stock logger puts its number into the program's dictionary."""
    both = runs["dictionaries"]
    assert both.bare is not None
    assert both.ours.ran.ok().out == both.bare.ran.ok().out != both.stock.ran.ok().out
    assert [record["nan_count"] for record in both.ours.records] == [
        record["nan_count"] for record in both.stock.records
    ]
    assert both.ours.summary["first_bad"]["batch_id"] == 4


def test_a_batch_given_by_keyword_is_followed(runs: dict[str, Both]) -> None:
    """The stock logger looks at the first positional argument, and finds nothing."""
    both = runs["by keyword"]
    assert both.bare is not None
    assert both.ours.ran.ok().out == both.bare.ran.ok().out
    assert both.stock.records == []
    assert [(record["batch_id"], record["bad"]) for record in both.ours.records] == [(n, n == 4) for n in range(1, 7)]
