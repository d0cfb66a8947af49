"""Our engine beside the stock logger on a transformer: channels, limits, ranges and diagnostics, record by record."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.parity.both import Both, Case, Differs, InSummary, Record, run_cases
from tests.parity.differences import (
    COUNT_ON_ENTRY,
    FURTHER_TENSORS,
    NO_FOLLOW,
    OPEN_END,
    READ_ON_ENTRY,
)
from tests.parity.programs import TRANSFORMER

CHANNELS = ("act", "input", "igrad", "weight", "bias", "wgrad", "bgrad")
EACH_STEP = {"NANLOG_SAMPLE_EVERY": "1"}
SEVEN = {**EACH_STEP, "NANLOG_CHANNELS": ",".join(CHANNELS)}
BAD = ("--bad", "4")
DIAGNOSTICS = ("ADDR", "LOCATE", "BAD_VALUES", "DUMP_TENSOR", "ALLOC_SNAPSHOT")
MODULES = "Linear,ReLU,LayerNorm,Attention,Block,Sequential,Embedding,Transformer"
VALUES = ("finite_abs_max", "finite_max", "finite_min")

BEFORE_IN_PLACE = Differs(
    "What a module is given is read before the module overwrites it in place.",
    VALUES,
    lambda ours, stock: (
        ours["layer_name"].endswith("mlp.1")
        and ours["role"] == "input"
        and ours["finite_min"] < 0 == stock["finite_min"]
    ),
)
ALL_USES = Differs(
    "The gradient of a container's input is that of the tensor, from all its uses. The stock logger has the "
    "container's own share, for which it puts autograd functions around the module.",
    VALUES,
    lambda ours, stock: ours["role"] == "igrad" and ours["layer_name"].endswith(".mlp"),
)
NO_SNAPSHOT = InSummary(
    "Without a device there is no trace of its allocator. The stock logger says it wrote one, and there is no file.",
    "alloc_snapshot_dumped",
    lambda ours, stock: (ours, stock) == (False, True),
)
ERROR_NAMES_THE_PLACE = InSummary(
    "The error says which entry of the spec is meant.",
    "spec_error",
    lambda ours, stock: "watch[0].tensors" in ours and "watch[].tensors" in stock,
)

CASES = {
    **{
        channel: Case(TRANSFORMER, {**EACH_STEP, "NANLOG_CHANNELS": channel}, BAD, (NO_FOLLOW,)) for channel in CHANNELS
    },
    "seven": Case(TRANSFORMER, SEVEN, BAD, (NO_FOLLOW,)),
    "modules": Case(
        TRANSFORMER,
        {**SEVEN, "NANLOG_WATCH_TYPES": MODULES},
        BAD,
        (NO_FOLLOW, FURTHER_TENSORS, READ_ON_ENTRY, COUNT_ON_ENTRY, ALL_USES),
    ),
    "run-up": Case(
        TRANSFORMER,
        {**SEVEN, "NANLOG_PRE_CONTEXT": "3", "NANLOG_SAMPLE_EVERY": "4"},
        ("--bad", "9", "--steps", "11"),
        (NO_FOLLOW,),
    ),
    "run-up, then bad ones only": Case(
        TRANSFORMER,
        {**SEVEN, "NANLOG_PRE_CONTEXT": "2", "NANLOG_SAMPLE_EVERY": "3", "NANLOG_STOP_ON_FIRST": "1"},
        ("--bad", "6", "--steps", "9"),
        (NO_FOLLOW,),
    ),
    "sampled": Case(TRANSFORMER, {**SEVEN, "NANLOG_SAMPLE_EVERY": "2"}, ("--bad", "5"), (NO_FOLLOW,)),
    **{
        name: Case(TRANSFORMER, {**SEVEN, f"NANLOG_{name}": "1"}, BAD, (NO_FOLLOW,))
        for name in DIAGNOSTICS
        if name != "ALLOC_SNAPSHOT"
    },
    "all diagnostics": Case(
        TRANSFORMER, {**SEVEN, **{f"NANLOG_{name}": "1" for name in DIAGNOSTICS}}, BAD, (NO_FOLLOW, NO_SNAPSHOT)
    ),
    "ranges": Case(
        TRANSFORMER,
        {
            **SEVEN,
            "NANLOG_BOUNDS": "blocks.1:-0.5:0.5;head:-1:1",
            "NANLOG_BOUND_LO": "-3",
            **{f"NANLOG_{name}": "1" for name in ("LOCATE", "BAD_VALUES", "DUMP_TENSOR")},
        },
        BAD,
        (NO_FOLLOW, OPEN_END),
    ),
    "one range": Case(
        TRANSFORMER, {**EACH_STEP, "NANLOG_BOUND_LO": "-3", "NANLOG_BOUND_HI": "0.1"}, differences=(NO_FOLLOW,)
    ),
    "malformed spec": Case(
        TRANSFORMER,
        {**EACH_STEP, "NANLOG_SPEC": '{"watch": [{"tensors": []}]}', "NANLOG_CHANNELS": "act"},
        BAD,
        (NO_FOLLOW, ERROR_NAMES_THE_PLACE),
    ),
    "in place": Case(
        TRANSFORMER,
        {**EACH_STEP, "NANLOG_WATCH_TYPES": "Linear,ReLU", "NANLOG_CHANNELS": "input,act"},
        ("--inplace",),
        (NO_FOLLOW, BEFORE_IN_PLACE),
    ),
    "gradients": Case(
        TRANSFORMER,
        {**EACH_STEP, "NANLOG_WATCH_TYPES": "Sequential", "NANLOG_CHANNELS": "igrad"},
        ("--gradients",),
        (NO_FOLLOW, ALL_USES),
    ),
}
IN_PLACE_BACKWARD = Case(TRANSFORMER, EACH_STEP, ("--inplace",), bare=True)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Both]:
    return run_cases(tmp_path_factory, "transformer", {**CASES, "in place, with gradients": IN_PLACE_BACKWARD})


@pytest.mark.parametrize("name", CASES)
def test_records_and_summary_are_the_stock_loggers(runs: dict[str, Both], name: str) -> None:
    runs[name].check(CASES[name].differences)


@pytest.mark.parametrize("channel", CHANNELS)
def test_each_channel_has_its_records_and_no_others(runs: dict[str, Both], channel: str) -> None:
    assert runs[channel].ours.roles() == {channel}
    assert any(record["nan_count"] for record in runs[channel].ours.records)


def test_the_sampling_the_run_up_and_the_stop_leave_out_what_they_should(runs: dict[str, Both]) -> None:
    steps = {name: _steps(runs[name].ours.records) for name in ("sampled", "run-up", "run-up, then bad ones only")}
    assert steps["sampled"] == {False: {2, 4}, True: {5, 6}}
    assert steps["run-up"] == {False: {4, 5, 6, 7, 8, 9}, True: {9, 10, 11}}
    assert steps["run-up, then bad ones only"] == {False: {3, 4, 5}, True: {6, 7, 8, 9}}


def test_diagnostics_tell_of_the_first_bad_element(runs: dict[str, Both]) -> None:
    both = runs["all diagnostics"]
    first = next(record for record in both.ours.records if record["bad"])
    assert first["first_bad_value"] == "NaN"
    assert first["bad_rows"] == first["shape"][0]
    assert int(first["storage_ptr"], 16) <= int(first["data_ptr"], 16)
    (tensor,) = both.ours.dumps.values()
    assert tensor.isnan().sum() == first["nan_count"]


def test_without_a_device_both_warn_of_the_allocator_and_leave_no_trace(runs: dict[str, Both]) -> None:
    both = runs["all diagnostics"]
    for left in (both.stock, both.ours):
        assert any("WARNING" in line and "alloc" in line for line in left.ran.err.splitlines())
        assert not list(left.directory.glob("alloc_snapshot*"))


def test_ranges_are_by_layer_and_then_for_all(runs: dict[str, Both]) -> None:
    ours = runs["ranges"].ours
    assert ours.summary["first_oob"]["layer"].endswith("blocks.1.attention.qkv")
    assert ours.summary["oob_records"] == sum(record["oob_count"] > 0 for record in ours.records) > 0
    assert runs["one range"].ours.summary["peak_finite_max"] > 0.1


def test_a_containers_input_gradient_is_the_programs_own(runs: dict[str, Both]) -> None:
    ours = runs["gradients"].ours
    told = [float(line.split()[1]) for line in ours.ran.out.splitlines() if line.startswith("gradient")]
    assert [record["finite_abs_max"] for record in ours.records] == told
    assert len(told) == 12


def test_in_place_operations_after_a_watched_layer_go_on_working(runs: dict[str, Both]) -> None:
    """torch's full backward hooks, which the stock logger uses, make them an error that ends the program."""
    both = runs["in place, with gradients"]
    assert both.bare is not None
    assert both.stock.ran.code == 1
    assert both.ours.ran.ok().out == both.bare.ran.ok().out
    assert both.ours.roles() == {"act", "igrad"}


def _steps(records: list[Record]) -> dict[bool, set[int]]:
    """Steps that have clean records, and steps that have bad ones."""

    def of(bad: bool) -> Iterator[int]:
        return (record["step"] for record in records if record["bad"] is bad)

    return {bad: set(of(bad)) for bad in (False, True)}
