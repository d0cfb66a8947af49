"""Our engine beside the stock logger on torchrec's DLRM and on a training loop with all that such loops do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.layer_numerics.programs import DMP
from tests.parity.both import Both, Case, Differs, Elsewhere, InSummary, Record, run_cases, run_command
from tests.parity.differences import (
    COUNT_ON_ENTRY,
    FURTHER_TENSORS,
    NO_FOLLOW,
    READ_ON_ENTRY,
    SPARSE_WAIT,
    SPARSE_WAIT_COUNTED,
)
from tests.parity.programs import LOOP, PIPELINE

SEVEN = "act,input,igrad,weight,bias,wgrad,bgrad"
GROWING = ("--lr", "3", "--steps", "12")


def _is_containers_gradient(record: Record) -> bool:
    return record["role"] == "igrad" and record["layer_name"].rpartition(".")[2] in ("over_arch", "model", "_mlp", "0")


CONTAINERS_GRADIENT = Elsewhere(
    "A container and its parts are given one tensor, whose gradient all of them see at one moment: in the order in "
    "which they were entered. The stock logger has put an autograd function around each.",
    _is_containers_gradient,
)
CONTAINERS_COUNT = Differs(
    "Therefore other tensors have been seen by then.",
    ("matmul_calls_so_far",),
    lambda ours, stock: _is_containers_gradient(ours),
)
_UNCOUNTED = (
    "Checkpointing stops to compute again once it has what it needs, here inside the layer, which then has no output. "
    "The stock logger's own reductions are among what is to be computed again: its hook is stopped half-way, having "
    "counted an output of which it keeps no record."
)
NO_OUTPUT_OF_A_STOPPED_LAYER = (
    Differs(
        _UNCOUNTED,
        ("matmul_calls_so_far",),
        lambda ours, stock: ours["matmul_calls_so_far"] < stock["matmul_calls_so_far"],
    ),
    InSummary(_UNCOUNTED, "matmul_calls_total", lambda ours, stock: ours < stock),
)

CASES = {
    "run-up": Case(
        DMP,
        {"NANLOG_PRE_CONTEXT": "4", "NANLOG_SAMPLE_EVERY": "5", "NANLOG_CHANNELS": SEVEN},
        GROWING,
        (NO_FOLLOW,),
    ),
    "defaults": Case(DMP, {}, ("--lr", "0.01", "--steps", "51"), (NO_FOLLOW,)),
    "scope": Case(
        DMP,
        {
            "NANLOG_WATCH_NAMES": "dense_arch,sparse_arch",
            "NANLOG_WATCH_TYPES": "Perceptron,Linear",
            "NANLOG_CHANNELS": "act,igrad,weight,wgrad",
            "NANLOG_WATCH_STRIDE": "2",
            "NANLOG_HUGE_THRESHOLD": "0.5",
            "NANLOG_MAX_RECORDS": "20",
            "NANLOG_STOP_ON_FIRST": "1",
            "NANLOG_MAX_PARAM_NUMEL": "100",
            "NANLOG_SAMPLE_EVERY": "1",
        },
        ("--lr", "0.1"),
        (NO_FOLLOW,),
    ),
    "all modules": Case(
        DMP,
        {"NANLOG_WATCH_NAMES": "_dmp_wrapped_module", "NANLOG_CHANNELS": SEVEN, "NANLOG_SAMPLE_EVERY": "1"},
        GROWING,
        (
            *(NO_FOLLOW, FURTHER_TENSORS, READ_ON_ENTRY, COUNT_ON_ENTRY),
            *(CONTAINERS_GRADIENT, CONTAINERS_COUNT),
        ),
    ),
    "training loop": Case(
        LOOP,
        {"NANLOG_CHANNELS": SEVEN, "NANLOG_SAMPLE_EVERY": "1"},
        (),
        (NO_FOLLOW, *NO_OUTPUT_OF_A_STOPPED_LAYER),
    ),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Both]:
    return run_cases(tmp_path_factory, "stock", CASES)


@pytest.mark.parametrize("name", CASES)
def test_records_and_summary_are_the_stock_loggers(runs: dict[str, Both], name: str) -> None:
    runs[name].check(CASES[name].differences)


def test_the_run_up_is_written_before_the_first_bad_record(runs: dict[str, Both]) -> None:
    ours = runs["run-up"].ours
    assert ours.summary["pre_context_flushed"]
    assert not ours.records[0]["bad"]


def test_by_default_one_step_of_fifty_is_sampled(runs: dict[str, Both]) -> None:
    ours = runs["defaults"].ours
    assert {record["step"] for record in ours.records} == {50}
    assert ours.summary["first_bad"] is None


def test_limits_leave_out_and_say_so(runs: dict[str, Both]) -> None:
    ours = runs["scope"].ours
    assert len(ours.records) == 20
    assert ours.summary["skipped_params"]


def test_values_inside_keyed_and_jagged_tensors_have_records(runs: dict[str, Both]) -> None:
    records = runs["all modules"].ours.records
    jagged = {record["module_path"] for record in records if record["tensor_path"].endswith("values()")}
    assert jagged == {"(root)", "sparse_arch", "sparse_arch.embedding_bag_collection"}
    indices = [record for record in records if record["tensor_path"] == "[1].values()" and record["step"] == 1]
    assert [(record["dtype"], record["shape"]) for record in indices] == [("torch.int64", [8])] * 2


def test_arguments_given_by_keyword_have_records(runs: dict[str, Both]) -> None:
    """DLRM calls its interaction so; for the stock logger it has neither inputs nor gradients of them."""
    by_keyword = {
        (record["role"], record["tensor_path"])
        for record in runs["all modules"].ours.records
        if record["module_path"] == "inter_arch"
    }
    named = {(role, path) for role in ("input", "igrad") for path in ("dense_features", "sparse_features")}
    assert by_keyword == named | {("act", "")}


@pytest.mark.parametrize("name", ["all modules", "training loop"])
def test_what_is_counted_is_the_first_tensors_that_have_records(runs: dict[str, Both], name: str) -> None:
    ours = runs[name].ours
    counted = [r for r in ours.records if r["role"] in ("act", "igrad") and r["tensor_path"] in ("", "[0]")]
    assert ours.summary["matmul_calls_total"] == len(counted) == counted[-1]["matmul_calls_so_far"]


def test_what_checkpointing_computes_again_is_marked(runs: dict[str, Both]) -> None:
    again = [record for record in runs["training loop"].ours.records if record.get("recompute")]
    assert {(record["module_path"], record["role"]) for record in again} == {("recomputed", "input")}
    assert len(again) == 12


def test_as_commands_all_seven_channels_agree_up_to_the_nan(tmp_path: Path) -> None:
    case = Case(DMP, {"NANLOG_CHANNELS": SEVEN, "NANLOG_SAMPLE_EVERY": "1"}, GROWING)
    both = run_command(tmp_path, case)
    both.check((NO_FOLLOW,))
    assert both.ours.roles() == set(SEVEN.split(","))
    assert both.ours.summary["first_bad"] is not None
    assert any(record["nan_count"] for record in both.ours.records)
    assert any(record["huge_count"] for record in both.ours.records)
    assert any(record["finite_max"] is None for record in both.ours.records)


def test_as_commands_a_nan_that_a_batch_brings_is_found_at_the_copy_stage(tmp_path: Path) -> None:
    spec = {
        "follow": [{"tensor": "embedding_features", "stages": True, "bounds": [0, 60]}],
        "pre_context": 3,
        "sample_every": 1,
    }
    words = ("--bad", "7", "--steps", "10")
    both = run_command(tmp_path, Case(PIPELINE, {"NANLOG_SPEC": json.dumps(spec)}, words))
    both.check((SPARSE_WAIT, SPARSE_WAIT_COUNTED))
    first = both.ours.summary["first_bad"]
    assert (first["phase"], first["batch_id"], first["kind"]) == ("copy", 7, "nan")
    bad = [record["phase"] for record in both.ours.records if record["batch_id"] == 7 and record["bad"]]
    assert bad == ["copy", "sparse_start", "sparse_wait", "forward"]
